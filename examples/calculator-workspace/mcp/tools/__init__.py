"""Importing this package registers every tool beside it."""

from importlib import import_module
from pathlib import Path

for module in sorted(Path(__file__).parent.glob("*.py")):
    if module.stem != "__init__":
        import_module(f"{__name__}.{module.stem}")
