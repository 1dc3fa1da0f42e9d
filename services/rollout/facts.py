"""The facts that the broker states, made of batches and trajectories. Pure."""

from __future__ import annotations

from libs.common.contracts.blobs import Parcel
from libs.common.contracts.recipes import Recipe
from libs.common.contracts.rollouts import (
    BatchRequested,
    GroupCompleted,
    GroupSampled,
    RolloutCompleted,
    RolloutFailed,
)
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.identifiers import GroupId, RolloutId
from services.rollout.outcomes import sampled_tokens, why_no_reward


def rollout_failed(batch: BatchRequested, trajectory: Trajectory) -> RolloutFailed:
    """The fact that a rollout failed."""
    return RolloutFailed(
        workspace_id=batch.workspace_id,
        rollout_id=RolloutId(trajectory.rollout_id),
        run_id=batch.run_id,
        epoch=batch.epoch,
        step=batch.step,
        phase=batch.phase,
        row_index=trajectory.row_index,
        sample_index=trajectory.sample_index,
        error=trajectory.error or "it failed",
    )


def rollout_completed(batch: BatchRequested, trajectory: Trajectory) -> RolloutCompleted:
    """The fact that a rollout ended and was scored."""
    return RolloutCompleted(
        workspace_id=batch.workspace_id,
        rollout_id=RolloutId(trajectory.rollout_id),
        run_id=batch.run_id,
        epoch=batch.epoch,
        step=batch.step,
        phase=batch.phase,
        row_index=trajectory.row_index,
        sample_index=trajectory.sample_index,
        reward=trajectory.reward,
        finish_reason=trajectory.finish_reason,
        turns=trajectory.turns,
        tool_calls=trajectory.tool_calls,
        tokens=sampled_tokens(trajectory),
        duration_ms=trajectory.duration_ms,
        error=why_no_reward(trajectory),
    )


def group_sampled(
    batch: BatchRequested, group_id: GroupId, parcel: Parcel[Group], recipe: Recipe
) -> GroupSampled:
    """The fact that a group waits for its rewards."""
    return GroupSampled(
        workspace_id=batch.workspace_id,
        group_id=group_id,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        epoch=batch.epoch,
        step=batch.step,
        phase=batch.phase,
        group=parcel,
        code=recipe.code,
        rewards=recipe.rewards,
        scoring=recipe.config.scoring,
    )


def group_completed(batch: BatchRequested, group_id: GroupId, parcel: Parcel[Group]) -> GroupCompleted:
    """The fact that a group can be trained on."""
    return GroupCompleted(
        workspace_id=batch.workspace_id,
        group_id=group_id,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        epoch=batch.epoch,
        step=batch.step,
        phase=batch.phase,
        group=parcel,
    )
