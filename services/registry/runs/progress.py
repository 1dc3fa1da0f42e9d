"""A run's progress under fencing: what attempts and users say, and the moves that follow.

Guaranteed: an attempt's epoch only grows; what an attempt says after it was taken for dead, or after a newer one began,
changes nothing; a terminal status never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from libs.common.contracts.runs import TERMINAL, RunStatus
from services.registry.runs.states import RunEvent, next_status

BY_ATTEMPT: frozenset[RunEvent] = frozenset(
    {"attempt_started", "attempt_completed", "attempt_failed", "attempt_cancelled", "attempt_paused"}
)


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `attempt_over`: the attempt of `epoch` is dead or has left, so it is not heard any more."""

    status: RunStatus = "pending"
    epoch: int = 0
    attempt_over: bool = True
    attempts: int = 0
    losses: int = 0

    def hears(self, epoch: int) -> bool:
        """Whether an attempt of that epoch still speaks for the run."""
        return epoch > self.epoch or (epoch == self.epoch and not self.attempt_over)


@dataclass(frozen=True)
class Move:
    """One change of status, and where the run stands after it."""

    event: RunEvent
    after: Progress


def ask(progress: Progress, event: RunEvent) -> Move | None:
    """What a user's wish (or the registry's own `frozen`) leads to; None when the status forbids it."""
    return _move(progress, event, progress.epoch)


def hear(progress: Progress, event: RunEvent, epoch: int, *, max_losses: int) -> list[Move]:
    """The moves that a lease's or an attempt's word leads to: none when it is stale or changes nothing.

    Facts of scheduler and trainer come in no order between the two: an attempt may be heard before its lease, and then
    stands for it.
    """
    if not progress.hears(epoch):
        return []
    moves: list[Move] = []
    if event in BY_ATTEMPT and progress.status == "queued":
        moves.append(_granted(progress, epoch))
        progress = moves[-1].after
    if (
        event == "lease_lost"
        and progress.losses + 1 >= max_losses
        and next_status(progress.status, "gave_up")
    ):
        event = "gave_up"
    move = _move(progress, event, epoch)
    return moves if move is None else [*moves, move]


def _granted(progress: Progress, epoch: int) -> Move:
    granted = _move(progress, "lease_granted", epoch)
    assert granted is not None, "only a queued run is granted a lease"
    return granted


def _move(progress: Progress, event: RunEvent, epoch: int) -> Move | None:
    status = next_status(progress.status, event)
    if status is None:
        return None
    if event == "lease_granted":
        after = replace(
            progress, status=status, epoch=epoch, attempt_over=False, attempts=progress.attempts + 1
        )
        return Move(event, after)
    lost = event in ("lease_lost", "gave_up")
    # A cancelled run's attempt may still save its last checkpoint; one that was lost or has left may not.
    over = progress.attempt_over or lost or event in BY_ATTEMPT - {"attempt_started"}
    return Move(event, replace(progress, status=status, attempt_over=over, losses=progress.losses + lost))


def ended(progress: Progress) -> bool:
    """Whether the status is terminal."""
    return progress.status in TERMINAL
