"""What the registry answers and what it does on facts: load, decide, save, emit; one module a thing."""
