"""The states of rollouts and of groups, and their allowed moves. A terminal state never changes."""

from __future__ import annotations

from typing import Literal

RolloutStatus = Literal["pending", "running", "sampled", "completed", "failed"]
RolloutEvent = Literal["start", "sample", "fail", "score", "abandon"]

ROLLOUT_MOVES: dict[tuple[RolloutStatus, RolloutEvent], RolloutStatus] = {
    ("pending", "start"): "running",
    ("pending", "fail"): "failed",
    ("pending", "abandon"): "failed",
    ("running", "sample"): "sampled",
    ("running", "fail"): "failed",
    ("running", "abandon"): "failed",
    ("sampled", "score"): "completed",
    ("sampled", "abandon"): "failed",
}

GroupState = Literal["waiting", "running", "scoring", "completed", "abandoned"]
GroupEvent = Literal["claim", "sampled", "all_failed", "scored", "abandon"]

GROUP_MOVES: dict[tuple[GroupState, GroupEvent], GroupState] = {
    ("waiting", "claim"): "running",
    ("waiting", "abandon"): "abandoned",
    ("running", "claim"): "running",
    ("running", "sampled"): "scoring",
    ("running", "all_failed"): "completed",
    ("running", "abandon"): "abandoned",
    ("scoring", "scored"): "completed",
    ("scoring", "abandon"): "abandoned",
}
"""A running group is claimed again when the replica that ran it is gone."""


def rollouts_that_may(event: RolloutEvent) -> list[RolloutStatus]:
    """The states that an event moves a rollout out of."""
    return [status for status, one in ROLLOUT_MOVES if one == event]


def groups_that_may(event: GroupEvent) -> list[GroupState]:
    """The states that an event moves a group out of."""
    return [state for state, one in GROUP_MOVES if one == event]
