"""Merges and exports: their states in one table, and the same fencing by epoch that runs have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

JobStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
JobEvent = Literal[
    "lease_granted", "attempt_completed", "attempt_failed", "attempt_cancelled", "lease_lost", "gave_up"
]
MAX_LOSSES = 5

JOB_MOVES: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    ("queued", "lease_granted"): "running",
    ("running", "attempt_completed"): "completed",
    ("running", "attempt_failed"): "failed",
    ("running", "attempt_cancelled"): "cancelled",
    ("running", "lease_lost"): "queued",
    ("running", "gave_up"): "failed",
}


@dataclass(frozen=True)
class JobProgress:
    """Where a job stands. `attempt_over`: the attempt of `epoch` is not heard any more."""

    status: JobStatus = "queued"
    epoch: int = 0
    attempt_over: bool = True
    losses: int = 0


def hear_job(progress: JobProgress, event: JobEvent, epoch: int) -> JobProgress | None:
    """Where a lease's or an attempt's word leads to; None when it is stale or changes nothing.

    An attempt may be heard before its lease, which it then stands for.
    """
    if epoch < progress.epoch or (epoch == progress.epoch and progress.attempt_over):
        return None
    if event.startswith("attempt_") and progress.status == "queued":
        progress = replace(progress, status="running", epoch=epoch, attempt_over=False)
    if event == "lease_lost" and progress.losses + 1 >= MAX_LOSSES:
        event = "gave_up"
    status = JOB_MOVES.get((progress.status, event))
    if status is None:
        return None
    lost = event in ("lease_lost", "gave_up")
    return JobProgress(status, epoch, event != "lease_granted", progress.losses + lost)
