"""The states of a run and every allowed move, in one table. What is not in the table does not happen."""

from __future__ import annotations

from typing import Literal

from libs.common.contracts.runs import RunStatus

RunEvent = Literal[
    "frozen",
    "lease_granted",
    "attempt_started",
    "attempt_completed",
    "attempt_failed",
    "attempt_cancelled",
    "attempt_paused",
    "lease_lost",
    "gave_up",
    "pause_requested",
    "resume_requested",
    "cancel_requested",
]
"""`frozen`: the inputs are kept. `gave_up`: a lease was lost once too often."""

MOVES: dict[tuple[RunStatus, RunEvent], RunStatus] = {
    ("pending", "frozen"): "queued",
    ("pending", "cancel_requested"): "cancelled",
    ("queued", "lease_granted"): "provisioning",
    ("queued", "cancel_requested"): "cancelled",
    ("provisioning", "attempt_started"): "running",
    ("provisioning", "attempt_completed"): "completed",
    ("provisioning", "attempt_failed"): "failed",
    ("provisioning", "attempt_cancelled"): "cancelled",
    ("provisioning", "attempt_paused"): "queued",
    ("provisioning", "lease_lost"): "queued",
    ("provisioning", "gave_up"): "failed",
    ("provisioning", "cancel_requested"): "cancelled",
    ("running", "attempt_completed"): "completed",
    ("running", "attempt_failed"): "failed",
    ("running", "attempt_cancelled"): "cancelled",
    # An attempt that saves its state and stops unasked was preempted: the run waits for another place.
    ("running", "attempt_paused"): "queued",
    ("running", "lease_lost"): "queued",
    ("running", "gave_up"): "failed",
    ("running", "pause_requested"): "pausing",
    ("running", "cancel_requested"): "cancelled",
    ("pausing", "attempt_paused"): "paused",
    # The resources are gone, as the user wanted; what was trained since the last checkpoint is trained again.
    ("pausing", "lease_lost"): "paused",
    ("pausing", "attempt_completed"): "completed",
    ("pausing", "attempt_failed"): "failed",
    ("pausing", "attempt_cancelled"): "cancelled",
    ("pausing", "cancel_requested"): "cancelled",
    ("paused", "resume_requested"): "queued",
    ("paused", "cancel_requested"): "cancelled",
}


def next_status(status: RunStatus, event: RunEvent) -> RunStatus | None:
    """Where an event leads from a status; None when it changes nothing there."""
    return MOVES.get((status, event))
