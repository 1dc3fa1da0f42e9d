"""What scheduler and trainer state about runs and jobs: leases, attempts, steps, checkpoints.

Guaranteed: what an attempt of an older epoch states, or one that was taken for dead, changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from libs.common.contracts.recipes import Recipe
from libs.common.contracts.work import (
    AttemptEnded,
    AttemptStarted,
    AttemptStepped,
    CheckpointSaved,
    LeaseGranted,
    LeaseLost,
)
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.handlers.job_facts import JobFacts
from services.registry.handlers.moving import apply, progress_of
from services.registry.runs import RunEvent, hear
from services.registry.store import RegistryStore
from services.registry.tables import CheckpointRow, RunRow

Uow = UnitOfWork[RegistryStore]

TRAINING_REWARD = "rollout/raw_reward"
VALIDATION_REWARD = "eval/validation/reward"

_OUTCOMES: dict[str, RunEvent] = {
    "completed": "attempt_completed",
    "failed": "attempt_failed",
    "cancelled": "attempt_cancelled",
    "paused": "attempt_paused",
}


class AttemptFacts:
    """Handlers of facts that are about a run or a job."""

    def __init__(self, platform: Platform, surplus: Callable[[], None]) -> None:
        """`surplus` is told that there are checkpoints to prune."""
        self._jobs = JobFacts(platform)
        self._surplus = surplus

    async def on_lease_granted(self, fact: LeaseGranted, uow: Uow) -> None:
        """The work has its resources."""
        if fact.work_kind == "job":
            await self._jobs.hear(fact.work_id, "lease_granted", fact.epoch, uow)
        else:
            await _hear(fact.work_id, "lease_granted", fact.epoch, uow)

    async def on_lease_lost(self, fact: LeaseLost, uow: Uow) -> None:
        """The attempt is dead: queue the work again, unless it was lost too often."""
        if fact.work_kind == "job":
            await self._jobs.hear(fact.work_id, "lease_lost", fact.epoch, uow, error=fact.reason)
        else:
            await _hear(fact.work_id, "lease_lost", fact.epoch, uow, reason=fact.reason)

    async def on_attempt_started(self, fact: AttemptStarted, uow: Uow) -> None:
        """The attempt's process is up."""
        if fact.work_kind == "job":
            return
        row = await _hear(fact.work_id, "attempt_started", fact.epoch, uow)
        if row is not None and progress_of(row).hears(fact.epoch):
            row.total_steps = fact.total_steps or row.total_steps
            row.step = fact.from_step

    async def on_attempt_ended(self, fact: AttemptEnded, uow: Uow) -> None:
        """The attempt said how it ended."""
        if fact.work_kind == "job":
            await self._jobs.on_ended(fact, uow)
        else:
            await _hear(
                fact.work_id, _OUTCOMES[fact.outcome], fact.epoch, uow, reason=fact.error, step=fact.step
            )

    async def on_checkpoint_saved(self, fact: CheckpointSaved, uow: Uow) -> None:
        """Keep a checkpoint, and give up what is more than the run keeps."""
        row = await uow.store.runs.for_change(fact.run_id)
        if row is None or not progress_of(row).hears(fact.epoch):
            return
        if await uow.store.checkpoints.known(fact.checkpoint_id):
            return
        await uow.store.checkpoints.add(
            CheckpointRow(
                id=fact.checkpoint_id,
                workspace_id=row.workspace_id,
                run_id=row.id,
                epoch=fact.epoch,
                step=fact.step,
                size=fact.size,
                manifest_json=fact.manifest.model_dump_json(),
                metrics_json=json.dumps(fact.metrics),
                created_at=uow.now(),
            )
        )
        keep = Recipe.model_validate_json(row.recipe_json).config.checkpoints.keep
        if await uow.store.checkpoints.give_up_surplus(row.id, keep, uow.now()):
            uow.after_commit(self._surplus)


async def on_attempt_stepped(fact: AttemptStepped, uow: Uow) -> None:
    """Show how far a run is. Of validations the one before training and the last one are kept."""
    row = await uow.store.runs.for_change(fact.work_id)
    if row is None or not progress_of(row).hears(fact.epoch):
        return
    if fact.phase == "train":
        row.step, row.total_steps = fact.step, fact.total_steps
        row.reward = fact.metrics.get(TRAINING_REWARD, row.reward)
    elif fact.step == 0:
        row.validation_before = fact.metrics.get(VALIDATION_REWARD, row.validation_before)
    else:
        row.validation_after = fact.metrics.get(VALIDATION_REWARD, row.validation_after)


async def _hear(
    run_id: str, event: RunEvent, epoch: int, uow: Uow, *, reason: str | None = None, step: int | None = None
) -> RunRow | None:
    """Apply what follows for the run; the run, where there is one."""
    row = await uow.store.runs.for_change(run_id)
    if row is None:
        return None
    most = Recipe.model_validate_json(row.recipe_json).config.max_attempts
    for move in hear(progress_of(row), event, epoch, max_losses=most):
        if move.event == "attempt_completed" and step:
            row.step = step
        text = reason
        if move.event == "gave_up":
            text = f"its resources were lost {move.after.losses} times, the last time: {reason}"
        await apply(row, move, uow, reason=text)
    return row
