"""Time as a value that is passed in. A test moves `ManualClock`; nothing in the product asks the system directly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Aware UTC time."""

    def now(self) -> datetime:
        """The time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        """The time that was set."""
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move on."""
        self._now += by
