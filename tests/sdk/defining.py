"""Functions as a user's file defines them, from their head and what they return."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SDK = Path(__file__).parents[2] / "libs" / "sdk"
sys.path.insert(0, str(SDK))


def define(decorator: str, head: str, result: str, *, postponed: bool = False) -> Any:
    """The decorated function of a module with that head and `return result`."""
    source = [
        "from __future__ import annotations" if postponed else "",
        "from typing import Any, Optional",
        f"from osmosis_ai import {decorator}",
        f"@{decorator}",
        f"{head}:",
        f"    return {result}",
    ]
    names: dict[str, Any] = {"__name__": "users_module"}
    exec("\n".join(source), names)
    return names["f"]
