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
class Exit:
    """The end of an attempt's process. `said`: by its status, it told the trainer how it ended. `text`: for the user."""

    said: bool
    text: str


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
        """Whether the attempt's process runs, or anything that it started: its devices are in use."""
        ...

    def ended(self, process: ProcessRef) -> Exit | None:
        """How the attempt's own process ended; None while it runs."""
        ...

    def terminate(self, process: ProcessRef) -> None:
        """Ask an attempt and all it started to end."""
        ...

    def kill(self, process: ProcessRef) -> None:
        """End an attempt and all it started."""
        ...
