"""The demonstration: a language model learns to add, and everything it takes goes through the public REST interface."""
