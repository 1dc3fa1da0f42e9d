"""Runs: the table of their states, fencing by epoch, and what a configuration must be to become a recipe."""

from services.registry.runs.configuration import CheckedRun, Known, KnownDataset, Named, check, named
from services.registry.runs.legacy import legacy_status
from services.registry.runs.progress import Move, Progress, ask, hear
from services.registry.runs.states import MOVES, RunEvent, next_status

__all__ = [
    "MOVES",
    "CheckedRun",
    "Known",
    "KnownDataset",
    "Move",
    "Named",
    "Progress",
    "RunEvent",
    "ask",
    "check",
    "hear",
    "legacy_status",
    "named",
    "next_status",
]
