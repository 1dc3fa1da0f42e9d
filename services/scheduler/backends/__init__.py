"""Where attempts run. A backend starts, watches and ends them; the pool decides when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ProcessRef:
    """A process that may outlive the one that started it: a number is used again, with its start time it is not."""

    pid: int
    started: str


@dataclass(frozen=True)
class Start:
    """What an attempt is started with."""

    lease_id: str
    work_id: str
    epoch: int
    devices: tuple[str, ...]


class Backend(Protocol):
    """Attempts on one node."""

    def start(self, start: Start, trainer_url: str) -> ProcessRef:
        """Start an attempt.

        Raises:
            OSError: it cannot be started.
        """
        ...

    def alive(self, process: ProcessRef) -> bool:
        """Whether the attempt's process runs."""
        ...

    def exit_text(self, process: ProcessRef) -> str:
        """How a process ended, in words for the user."""
        ...

    def terminate(self, process: ProcessRef) -> None:
        """Ask an attempt and all it started to end."""
        ...

    def kill(self, process: ProcessRef) -> None:
        """End an attempt and all it started."""
        ...
