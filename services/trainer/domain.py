"""Decisions about attempts: which moves of an attempt are allowed, what it is told, who is fenced off.

Guaranteed here: an attempt that is over never moves again, and a weaker directive never replaces a stronger one.
"""

from __future__ import annotations

from typing import Literal

from libs.common.errors import Conflict, NotFound

AttemptState = Literal["open", "started", "ended", "over"]
"""open: the lease is granted. started: the process is up. ended: it said how it ended. over: it must stop."""

AttemptEvent = Literal["start", "end", "fence"]
"""fence: a newer epoch exists, or the lease is gone."""

DirectiveWord = Literal["go", "pause", "cancel"]

LIVE: frozenset[AttemptState] = frozenset({"open", "started"})

MOVES: dict[tuple[AttemptState, AttemptEvent], AttemptState] = {
    ("open", "start"): "started",
    ("open", "end"): "ended",
    ("open", "fence"): "over",
    ("started", "start"): "started",
    ("started", "end"): "ended",
    ("started", "fence"): "over",
    ("ended", "end"): "ended",
    ("ended", "fence"): "ended",
    ("over", "fence"): "over",
}
"""Every allowed move; a pair that is absent is a Conflict."""

_STRENGTH: dict[DirectiveWord, int] = {"go": 0, "pause": 1, "cancel": 2}


def move(state: AttemptState, event: AttemptEvent) -> AttemptState:
    """The state after `event`.

    Raises:
        Conflict: the attempt's state forbids it; its process must stop.
    """
    after = MOVES.get((state, event))
    if after is None:
        raise Conflict(f"the attempt is {state} and cannot {event}: its process must stop")
    return after


def stronger(held: DirectiveWord, wanted: DirectiveWord) -> DirectiveWord:
    """The directive that an attempt gets when both were said: cancel over pause over go."""
    return max(held, wanted, key=_STRENGTH.__getitem__)


def refusal(work_id: str, epoch: int, newest_epoch: int | None) -> Conflict | NotFound:
    """Why a call of an attempt that is not known here is refused; `newest_epoch` of its work, None without any."""
    if newest_epoch is not None and newest_epoch > epoch:
        return Conflict(f"epoch {epoch} of {work_id} is over: epoch {newest_epoch} was granted; stop")
    return NotFound(f"epoch {epoch} of {work_id} was not granted yet; try again shortly")


def fenced(work_id: str, epoch: int) -> Conflict:
    """The refusal that every call of an attempt gets once it is over or has ended."""
    return Conflict(f"epoch {epoch} of {work_id} is over: its lease is gone or it has ended; stop")


def heartbeat_pause_s(lease_ttl_s: float) -> float:
    """How often heartbeats of an attempt go on to the scheduler at most: five chances in a lease's life, seconds."""
    return min(4.0, lease_ttl_s / 5)
