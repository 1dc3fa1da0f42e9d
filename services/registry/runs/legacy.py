"""The words that clients of the hosted platform know a run's status by (platform features, section 9.4)."""

from __future__ import annotations

from typing import Literal

from libs.common.contracts.runs import RunStatus
from services.registry.runs.states import RunEvent

LegacyStatus = Literal["pending", "running", "finished", "failed", "crashed", "stopped", "killed"]

_WORDS: dict[RunStatus, LegacyStatus] = {
    "pending": "pending",
    "queued": "pending",
    "provisioning": "pending",
    "running": "running",
    "pausing": "running",
    # Those clients know no pause; a paused run showed as stopped.
    "paused": "stopped",
    "completed": "finished",
    "failed": "failed",
    "cancelled": "stopped",
}


def legacy_status(status: RunStatus, ended_by: RunEvent | None) -> LegacyStatus:
    """The old word; `ended_by` is the event that ended the run.

    `crashed`: its process died, again and again. `killed`: stopped, but not by a user.
    """
    if status == "failed" and ended_by == "gave_up":
        return "crashed"
    if status == "cancelled" and ended_by == "attempt_cancelled":
        return "killed"
    return _WORDS[status]
