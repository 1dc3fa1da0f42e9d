"""A lease's life, as a table: states, events, allowed moves. And when silence means death."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

LeaseState = Literal["held", "releasing", "released", "lost"]
LeaseEvent = Literal["end", "gone", "lose"]

MOVES: dict[tuple[LeaseState, LeaseEvent], LeaseState] = {
    ("held", "end"): "releasing",
    ("held", "lose"): "lost",
    ("releasing", "end"): "releasing",
    ("releasing", "gone"): "released",
}
"""`end`: the attempt said that it ended, or its work was cancelled. `gone`: its process is gone, its devices are free.
`lose`: it died, or fell silent, without having said that it ended. What is not in the table changes nothing."""

ACTIVE: frozenset[LeaseState] = frozenset({"held", "releasing"})
"""States in which the devices are taken."""

FIRST_HEARTBEAT = timedelta(seconds=180)
"""Until an attempt's first heartbeat: its process imports torch and says hello."""
NODE_SILENCE = timedelta(seconds=30)
"""A node that was not seen for so long is lost, and its leases with it."""


FORGET_NODE = timedelta(hours=24)
"""A lost node that holds nothing is shown for so long."""


def move(state: LeaseState, event: LeaseEvent) -> LeaseState:
    """The state after an event; the same where the table knows no move."""
    return MOVES.get((state, event), state)


def is_silent(
    granted_at: datetime,
    heartbeat_at: datetime | None,
    now: datetime,
    ttl: timedelta,
    hearing_since: datetime,
) -> bool:
    """Whether the attempt of a held lease has been silent for too long, to somebody who hears since then."""
    if heartbeat_at is None:
        return now - max(granted_at, hearing_since) > max(FIRST_HEARTBEAT, ttl)
    return now - max(heartbeat_at, hearing_since) > ttl
