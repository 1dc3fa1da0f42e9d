"""A run's moves as rows and facts: the one place where a run's status is written.

Guaranteed: every change of status leaves a transition and states its fact, in the same transaction.
"""

from __future__ import annotations

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import Recipe, ResumePoint
from libs.common.contracts.runs import (
    TERMINAL,
    RunCancelled,
    RunCompleted,
    RunFact,
    RunFailed,
    RunPaused,
    RunPausing,
    RunProvisioning,
    RunQueued,
    RunRunning,
)
from libs.common.identifiers import CheckpointId, ProjectId, RunId, WorkspaceId
from libs.common.unit_of_work import UnitOfWork
from services.registry.runs import Move, Progress
from services.registry.store import RegistryStore
from services.registry.tables import RunRow, TransitionRow

Uow = UnitOfWork[RegistryStore]
NO_REASON = "no reason was given"


def progress_of(row: RunRow) -> Progress:
    """Where a run stands."""
    return Progress(row.status, row.epoch, row.attempt_over, row.attempts, row.losses)


async def record_start(row: RunRow, uow: Uow) -> None:
    """The first entry of a run's history."""
    await uow.store.runs.add_transition(
        TransitionRow(run_id=row.id, at=uow.now(), status="pending", event="created", epoch=0)
    )


async def apply(row: RunRow, move: Move, uow: Uow, *, reason: str | None = None) -> None:
    """Write a move down and state its fact. `reason`: why, for the user; an error where the run failed."""
    after = move.after
    row.status, row.epoch, row.attempt_over = after.status, after.epoch, after.attempt_over
    row.attempts, row.losses = after.attempts, after.losses
    row.status_reason = reason
    if after.status == "running" and row.started_at is None:
        row.started_at = uow.now()
    if after.status in TERMINAL:
        row.ended_at, row.ended_by = uow.now(), move.event
        row.error = (reason or NO_REASON) if after.status == "failed" else None
    transition = TransitionRow(
        run_id=row.id, at=uow.now(), status=after.status, event=move.event, epoch=after.epoch, reason=reason
    )
    await uow.store.runs.add_transition(transition)
    uow.emit(await _fact(row, uow))


async def _fact(row: RunRow, uow: Uow) -> RunFact:
    workspace, run, project = WorkspaceId(row.workspace_id), RunId(row.id), ProjectId(row.project_id)
    match row.status:
        case "queued":
            return await _queued(row, uow)
        case "provisioning":
            return RunProvisioning(workspace_id=workspace, run_id=run, project_id=project, epoch=row.epoch)
        case "running":
            return RunRunning(workspace_id=workspace, run_id=run, project_id=project, epoch=row.epoch)
        case "pausing":
            return RunPausing(workspace_id=workspace, run_id=run, project_id=project, epoch=row.epoch)
        case "paused":
            return RunPaused(workspace_id=workspace, run_id=run, project_id=project)
        case "completed":
            return RunCompleted(workspace_id=workspace, run_id=run, project_id=project, step=row.step)
        case "failed":
            error = row.error or NO_REASON
            return RunFailed(workspace_id=workspace, run_id=run, project_id=project, error=error)
        case "cancelled":
            return RunCancelled(workspace_id=workspace, run_id=run, project_id=project)
        case "pending":
            raise ValueError("no move leads to pending")


async def _queued(row: RunRow, uow: Uow) -> RunQueued:
    last = await uow.store.checkpoints.last(row.id)
    resume = None
    if last is not None:
        manifest = BlobRef.model_validate_json(last.manifest_json)
        resume = ResumePoint(checkpoint_id=CheckpointId(last.id), step=last.step, manifest=manifest)
    return RunQueued(
        workspace_id=WorkspaceId(row.workspace_id),
        run_id=RunId(row.id),
        project_id=ProjectId(row.project_id),
        order=BlobRef.model_validate_json(row.order_json),
        resources=Recipe.model_validate_json(row.recipe_json).config.resources,
        resume_from=resume,
    )
