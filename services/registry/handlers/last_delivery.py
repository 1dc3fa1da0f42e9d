"""Background work that fails for a reason of ours: tried again by the bus, and at last told to the user.

Guaranteed: nothing that a user waits for stays "running" for ever. The fact itself ends as a dead letter, with the error
for the operator.
"""

from __future__ import annotations

from typing import Any

import structlog

from libs.common.bus import RetryPolicy
from libs.common.consuming import Work

SORRY = "it failed inside the platform, several times; try again, and tell the operator if it goes on"

_log = structlog.get_logger(__name__)


def is_last(work: Work[Any]) -> bool:
    """Whether the bus does not deliver the fact again."""
    return work.delivery >= RetryPolicy().deliveries


def give_up(what: str, error: Exception) -> None:
    """Record why, for the operator."""
    _log.error("background work was given up", what=what, error=repr(error), exc_info=error)
