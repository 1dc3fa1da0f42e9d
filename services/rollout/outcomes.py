"""How rollouts and groups ended: trajectories, columns and facts. Pure.

Guaranteed here: a rollout that failed has no reward, whoever says what; a group names each of its samples once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from libs.common.contracts.rollouts import (
    BatchRequested,
    Phase,
    RolloutView,
    SampleScore,
)
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.identifiers import GroupId, RolloutId, RunId
from services.rollout.live import LiveRollout
from services.rollout.messages import public
from services.rollout.plans import GroupClaim, Seat
from services.rollout.rows import Prompt
from services.rollout.tables import RolloutRow


@dataclass(frozen=True)
class Replaced:
    """A rollout that failed and in whose place another one was run."""

    seat: Seat
    trajectory: Trajectory


@dataclass(frozen=True)
class GroupOutcome:
    """A group whose rollouts have ended: `seats[i]` is of `group.trajectories[i]`."""

    group: Group
    seats: tuple[Seat, ...]
    replaced: tuple[Replaced, ...] = ()

    @property
    def all_failed(self) -> bool:
        """Whether there is nothing to score."""
        return all(trajectory.status == "failed" for trajectory in self.group.trajectories)


def trajectory_of(
    claim: GroupClaim,
    seat: Seat,
    prompt: Prompt,
    rollout: LiveRollout,
    *,
    finish_reason: str,
    error: str | None,
    duration_s: float,
) -> Trajectory:
    """What a rollout leaves behind; `error` not None: it failed."""
    return Trajectory(
        rollout_id=seat.rollout_id,
        group_id=claim.group_id,
        row_index=claim.row_index,
        sample_index=seat.sample_index,
        status="completed" if error is None else "failed",
        finish_reason=finish_reason,
        error=error,
        messages=[public(message) for message in rollout.messages],
        branches=rollout.conversation.branches(),
        ground_truth=prompt.ground_truth,
        metadata=prompt.metadata,
        turns=len(rollout.conversation.answers),
        tool_calls=rollout.tool_calls,
        duration_ms=duration_s * 1000,
        policy_ms=rollout.policy_s * 1000,
    )


def untold(
    rollout_id: RolloutId, group_id: GroupId, row_index: int, sample_index: int, error: str
) -> Trajectory:
    """The trajectory of a failed rollout of which nothing is kept: it never began, or was interrupted."""
    return Trajectory(
        rollout_id=rollout_id,
        group_id=group_id,
        row_index=row_index,
        sample_index=sample_index,
        status="failed",
        finish_reason="error",
        error=error,
    )


def never_started(claim: GroupClaim, seat: Seat, error: str) -> Trajectory:
    """The trajectory of a rollout that could not be begun."""
    return untold(seat.rollout_id, claim.group_id, claim.row_index, seat.sample_index, error)


def group_of(claim: GroupClaim, trajectories: Sequence[Trajectory]) -> Group:
    """The group of a claim's trajectories."""
    return Group(
        group_id=claim.group_id,
        run_id=claim.batch.run_id,
        epoch=claim.batch.epoch,
        batch_id=claim.batch.batch_id,
        row_index=claim.row_index,
        trajectories=list(trajectories),
    )


def sampled_tokens(trajectory: Trajectory) -> int:
    """Tokens that the policy sampled in a trajectory."""
    return sum(len(span.logprobs) for branch in trajectory.branches for span in branch.sampled)


def new_row(
    batch: BatchRequested, group_id: GroupId, row_index: int, seat: Seat, at: datetime
) -> dict[str, Any]:
    """The columns of a rollout that waits."""
    return {
        "id": seat.rollout_id,
        "group_id": group_id,
        "workspace_id": batch.workspace_id,
        "run_id": batch.run_id,
        "epoch": batch.epoch,
        "step": batch.step,
        "phase": batch.phase,
        "row_index": row_index,
        "sample_index": seat.sample_index,
        "replacement": seat.replacement,
        "status": "pending",
        "created_at": at,
    }


def ended_columns(trajectory: Trajectory, at: datetime) -> dict[str, Any]:
    """The columns that a rollout's end sets."""
    failed = trajectory.status == "failed"
    return {
        "id": trajectory.rollout_id,
        "status": "failed" if failed else "sampled",
        "finish_reason": trajectory.finish_reason,
        "turns": trajectory.turns,
        "tool_calls": trajectory.tool_calls,
        "tokens": sampled_tokens(trajectory),
        "duration_ms": trajectory.duration_ms,
        "error": trajectory.error,
        "ended_at": at if failed else None,
    }


def with_scores(group: Group, scores: Iterable[SampleScore]) -> Group:
    """The group with what the rewards service said; a rollout that failed stays without a reward."""
    by_rollout: Mapping[str, SampleScore] = {score.rollout_id: score for score in scores}
    return group.model_copy(
        update={"trajectories": [_scored(one, by_rollout.get(one.rollout_id)) for one in group.trajectories]}
    )


def _scored(trajectory: Trajectory, score: SampleScore | None) -> Trajectory:
    if score is None or trajectory.status == "failed":
        return trajectory
    return trajectory.model_copy(update={"reward": score.reward, "components": score.components})


def why_no_reward(trajectory: Trajectory) -> str | None:
    """Why a scored trajectory has no reward; None when it has one."""
    if trajectory.reward is not None:
        return None
    errors = [f"{part.name}: {part.error}" for part in trajectory.components if part.error is not None]
    return "; ".join(errors) or "no reward function answered"


def view_of(row: RolloutRow) -> RolloutView:
    """A rollout as its users see it."""
    phase: Phase = row.phase
    return RolloutView(
        id=RolloutId(row.id),
        run_id=RunId(row.run_id),
        epoch=row.epoch,
        step=row.step,
        phase=phase,
        row_index=row.row_index,
        sample_index=row.sample_index,
        status=row.status,
        reward=row.reward,
        finish_reason=row.finish_reason,
        turns=row.turns,
        tool_calls=row.tool_calls,
        tokens=row.tokens,
        error=row.error,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
