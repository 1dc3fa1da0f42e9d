"""What the trainer does about facts, and about the calls of attempts: load, decide, save, emit.

Guaranteed: an attempt that is over is refused whatever it says, and what it says twice is stated once.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from libs.common.contracts.attempts import BatchOrder, CheckpointReport, Directive, Ended, Started, StepReport
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.rollouts import BatchRequested, GroupCompleted
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPausing
from libs.common.contracts.work import (
    AttemptEnded,
    AttemptStarted,
    AttemptStepped,
    CheckpointSaved,
    JobCancelled,
    LeaseGranted,
    LeaseLost,
    LeaseReleased,
)
from libs.common.errors import Conflict, NotFound
from libs.common.identifiers import BatchId, RunId, WorkId, WorkspaceId
from libs.common.unit_of_work import UnitOfWork
from services.trainer.arrivals import Arrivals
from services.trainer.domain import LIVE, DirectiveWord, fenced, move, refusal, stronger
from services.trainer.store import TrainerStore
from services.trainer.tables import AttemptRow, BatchRow

Uow = UnitOfWork[TrainerStore]


async def on_lease_granted(fact: LeaseGranted, uow: Uow) -> None:
    """Open the attempt; older epochs of the same work are over."""
    newest = await uow.store.newest_epoch(fact.work_id)
    if newest is not None and newest >= fact.epoch:
        return
    for attempt in await uow.store.live_attempts(fact.work_id):
        await _fence(attempt, uow)
    unwanted = await uow.store.is_unwanted(fact.work_id)
    await uow.store.add_attempt(
        AttemptRow(
            work_id=fact.work_id,
            epoch=fact.epoch,
            workspace_id=fact.workspace_id,
            work_kind=fact.work_kind,
            state="open",
            directive="cancel" if unwanted else "go",
            order_json=fact.order.model_dump_json(),
            resume_json=fact.resume_from.model_dump_json() if fact.resume_from else None,
            step=fact.resume_from.step if fact.resume_from else 0,
            opened_at=uow.now(),
        )
    )


async def on_lease_gone(fact: LeaseLost | LeaseReleased, uow: Uow) -> None:
    """The attempt of this epoch is over, unless it said how it ended."""
    attempt = await uow.store.attempt_for_change(fact.work_id, fact.epoch)
    if attempt is not None:
        await _fence(attempt, uow)


async def on_run_pausing(fact: RunPausing, uow: Uow) -> None:
    """Tell the run's attempt to save its state and stop."""
    for attempt in await uow.store.live_attempts(WorkId(fact.run_id)):
        if attempt.epoch == fact.epoch:
            _direct(attempt, "pause")


async def on_run_unwanted(fact: RunCancelled | RunFailed, uow: Uow) -> None:
    """Tell the run's attempts to stop, also one whose lease is heard of later."""
    await _unwanted(WorkId(fact.run_id), uow)


async def on_job_cancelled(fact: JobCancelled, uow: Uow) -> None:
    """Tell the job's attempts to stop, also one whose lease is heard of later."""
    await _unwanted(WorkId(fact.job_id), uow)


async def keep_group(fact: GroupCompleted, uow: Uow, arrivals: Arrivals) -> None:
    """Keep a completed group until its attempt fetches it; one of an older epoch is of no use."""
    attempt = await uow.store.attempt(WorkId(fact.run_id), fact.epoch)
    batch = await uow.store.batch(fact.batch_id)
    if attempt is None or attempt.state not in LIVE or batch is None:
        return
    if (batch.work_id, batch.epoch) != (fact.run_id, fact.epoch):
        return
    if await uow.store.keep_group(fact.batch_id, fact.group_id, fact.group.model_dump_json()):
        uow.after_commit(lambda: arrivals.announce(fact.batch_id))


async def live_attempt(work_id: WorkId, epoch: int, uow: Uow) -> AttemptRow:
    """The attempt that calls, locked until the end of the unit of work.

    Raises:
        NotFound: its lease was not heard of yet.
        Conflict: it is over, or has ended.
    """
    attempt = await uow.store.attempt_for_change(work_id, epoch)
    if attempt is None:
        raise refusal(work_id, epoch, await uow.store.newest_epoch(work_id))
    if attempt.state not in LIVE:
        raise fenced(work_id, epoch)
    return attempt


async def know_recipe(work_id: WorkId, epoch: int, recipe: BlobRef, uow: Uow) -> None:
    """Keep where the attempt's recipe lies, for the batches that it will ask for."""
    attempt = await live_attempt(work_id, epoch, uow)
    attempt.recipe_json = recipe.model_dump_json()


async def start(work_id: WorkId, epoch: int, report: Started, uow: Uow) -> None:
    """The attempt's process is up; saying it again changes nothing.

    Raises:
        Conflict: the attempt is over, or another process of this epoch started.
    """
    attempt = await live_attempt(work_id, epoch, uow)
    if attempt.state == "started":
        if attempt.engine_url != report.engine_url:
            raise Conflict(f"epoch {epoch} of {work_id} was started by another process; stop")
        return
    attempt.state = move(attempt.state, "start")
    attempt.engine_url = report.engine_url
    attempt.started_at = uow.now()
    uow.emit(
        AttemptStarted(
            workspace_id=WorkspaceId(attempt.workspace_id),
            work_id=work_id,
            work_kind=attempt.work_kind,
            epoch=epoch,
            engine_url=report.engine_url,
            total_steps=report.total_steps,
            from_step=report.from_step,
        )
    )


async def direct(work_id: WorkId, epoch: int, uow: Uow) -> Directive:
    """What the attempt is to do now."""
    attempt = await live_attempt(work_id, epoch, uow)
    return Directive(directive=attempt.directive)


async def fence(work_id: WorkId, epoch: int, uow: Uow) -> None:
    """The scheduler says that the attempt's lease is gone."""
    attempt = await uow.store.attempt_for_change(work_id, epoch)
    if attempt is not None:
        await _fence(attempt, uow)


async def request_batch(work_id: WorkId, epoch: int, order: BatchOrder, uow: Uow) -> None:
    """State what the attempt wants sampled, once a batch id.

    Raises:
        Conflict: the attempt is over or not started, or the batch id was used for something else.
    """
    attempt = await live_attempt(work_id, epoch, uow)
    digest = hashlib.sha256(order.model_dump_json().encode()).hexdigest()
    known = await uow.store.batch(order.batch_id)
    if known is not None:
        if (known.work_id, known.epoch, known.digest) != (work_id, epoch, digest):
            raise Conflict(f"batch {order.batch_id} was asked for before, with other content")
        return
    if attempt.engine_url is None or attempt.recipe_json is None:
        raise Conflict(f"epoch {epoch} of {work_id} asks for a batch before it said hello and started")
    await uow.store.add_batch(
        BatchRow(
            batch_id=order.batch_id,
            work_id=work_id,
            epoch=epoch,
            step=order.step,
            phase=order.phase,
            digest=digest,
            asked=len(order.groups),
            completed=0,
            requested_at=uow.now(),
        )
    )
    uow.emit(
        BatchRequested(
            workspace_id=WorkspaceId(attempt.workspace_id),
            batch_id=order.batch_id,
            run_id=RunId(work_id),
            epoch=epoch,
            step=order.step,
            phase=order.phase,
            recipe=BlobRef.model_validate_json(attempt.recipe_json),
            engine_url=attempt.engine_url,
            groups=order.groups,
            n_samples=order.n_samples,
            sampling=order.sampling,
            seed=order.seed,
            deadline=uow.now() + timedelta(seconds=order.timeout_s),
        )
    )


async def batch_of(work_id: WorkId, epoch: int, batch_id: BatchId, store: TrainerStore) -> BatchRow:
    """A batch of the attempt that calls.

    Raises:
        NotFound: the attempt did not ask for it.
        Conflict: the attempt is over.
    """
    attempt = await store.attempt(work_id, epoch)
    if attempt is None:
        raise refusal(work_id, epoch, await store.newest_epoch(work_id))
    if attempt.state not in LIVE:
        raise fenced(work_id, epoch)
    batch = await store.batch(batch_id)
    if batch is None or (batch.work_id, batch.epoch) != (work_id, epoch):
        raise NotFound(f"epoch {epoch} of {work_id} asked for no batch {batch_id}; ask for it first")
    return batch


async def report_step(work_id: WorkId, epoch: int, report: StepReport, uow: Uow) -> None:
    """State a step's metrics, once a (step, phase); the groups it was trained on are no longer kept."""
    attempt = await live_attempt(work_id, epoch, uow)
    if not await uow.store.record_step(work_id, epoch, report.step, report.phase, uow.now()):
        return
    attempt.step = max(attempt.step, report.step)
    await uow.store.forget_groups(work_id, epoch, report.step - 1)
    uow.emit(
        AttemptStepped(
            workspace_id=WorkspaceId(attempt.workspace_id),
            work_id=work_id,
            epoch=epoch,
            step=report.step,
            total_steps=report.total_steps,
            phase=report.phase,
            metrics=report.metrics,
            at=uow.now(),
        )
    )


async def report_checkpoint(work_id: WorkId, epoch: int, report: CheckpointReport, uow: Uow) -> None:
    """State a saved checkpoint, once an id."""
    attempt = await live_attempt(work_id, epoch, uow)
    row = {
        "checkpoint_id": report.checkpoint_id,
        "work_id": work_id,
        "epoch": epoch,
        "step": report.step,
        "reported_at": uow.now(),
    }
    if not await uow.store.record_checkpoint(row):
        return
    uow.emit(
        CheckpointSaved(
            workspace_id=WorkspaceId(attempt.workspace_id),
            checkpoint_id=report.checkpoint_id,
            run_id=RunId(work_id),
            epoch=epoch,
            step=report.step,
            manifest=report.manifest,
            size=report.size,
            metrics=report.metrics,
        )
    )


async def end(work_id: WorkId, epoch: int, report: Ended, uow: Uow) -> None:
    """State how the attempt ended, once.

    Raises:
        Conflict: the attempt is over, or ended in another way.
    """
    attempt = await uow.store.attempt_for_change(work_id, epoch)
    if attempt is not None and attempt.state == "ended" and attempt.outcome == report.outcome:
        return
    attempt = await live_attempt(work_id, epoch, uow)
    attempt.state = move(attempt.state, "end")
    attempt.outcome = report.outcome
    attempt.error = report.error
    attempt.ended_at = uow.now()
    await uow.store.forget_groups(work_id, epoch, None)
    uow.emit(
        AttemptEnded(
            workspace_id=WorkspaceId(attempt.workspace_id),
            work_id=work_id,
            work_kind=attempt.work_kind,
            epoch=epoch,
            outcome=report.outcome,
            step=report.step,
            error=report.error,
            artifact=report.artifact,
        )
    )


async def _unwanted(work_id: WorkId, uow: Uow) -> None:
    await uow.store.mark_unwanted(work_id, uow.now())
    for attempt in await uow.store.live_attempts(work_id):
        _direct(attempt, "cancel")


def _direct(attempt: AttemptRow, wanted: DirectiveWord) -> None:
    attempt.directive = stronger(attempt.directive, wanted)


async def _fence(attempt: AttemptRow, uow: Uow) -> None:
    attempt.state = move(attempt.state, "fence")
    await uow.store.forget_groups(WorkId(attempt.work_id), attempt.epoch, None)
