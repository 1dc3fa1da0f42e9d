"""The version of the package, in a file of its own so that building it imports nothing else."""

__version__ = "0.3.0"
