"""What leases and attempts mean for merges and exports, and what a finished one leaves behind."""

from __future__ import annotations

from libs.common.blobs import BlobStore
from libs.common.blobs.folders import read_manifest
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.models import JobFailed, ModelExported, ModelReady
from libs.common.contracts.recipes import ResourceConfig
from libs.common.contracts.work import AttemptEnded, JobQueued
from libs.common.identifiers import CheckpointId, JobId, ModelId, WorkspaceId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.jobs import JobEvent, JobProgress, hear_job
from services.registry.store import RegistryStore
from services.registry.tables import JobRow, ModelRow

Uow = UnitOfWork[RegistryStore]

JOB_RESOURCES = ResourceConfig(slots=1)
"""Merging and writing files take no GPU."""

_OUTCOMES: dict[str, JobEvent] = {
    "completed": "attempt_completed",
    "failed": "attempt_failed",
    "cancelled": "attempt_cancelled",
    # A job keeps no state to go on from: one that was told to leave starts again.
    "paused": "lease_lost",
}


def queued(row: JobRow) -> JobQueued:
    """The fact that a job waits for resources."""
    return JobQueued(
        workspace_id=WorkspaceId(row.workspace_id),
        job_id=JobId(row.id),
        kind="merge" if row.kind == "merge" else "export",
        order=BlobRef.model_validate_json(row.order_json),
        resources=JOB_RESOURCES,
    )


class JobFacts:
    """Moves of jobs."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs

    async def on_ended(self, fact: AttemptEnded, uow: Uow) -> None:
        """A job's attempt said how it ended."""
        event, error, artifact = _OUTCOMES[fact.outcome], fact.error, fact.artifact
        if event == "attempt_completed" and artifact is None:
            event, error = "attempt_failed", "the attempt ended without leaving anything behind"
        await self.hear(fact.work_id, event, fact.epoch, uow, error=error, artifact=artifact)

    async def hear(
        self,
        job_id: str,
        event: JobEvent,
        epoch: int,
        uow: Uow,
        *,
        error: str | None = None,
        artifact: BlobRef | None = None,
    ) -> None:
        """Apply what follows for the job."""
        row = await uow.store.models.job_for_change(job_id)
        if row is None:
            return
        after = hear_job(JobProgress(row.status, row.epoch, row.attempt_over, row.losses), event, epoch)
        if after is None:
            return
        row.status, row.epoch = after.status, after.epoch
        row.attempt_over, row.losses = after.attempt_over, after.losses
        if row.status == "queued":
            uow.emit(queued(row))
        elif row.status in ("completed", "failed", "cancelled"):
            row.ended_at = uow.now()
            await self._end(row, error, artifact, uow)

    async def _end(self, row: JobRow, error: str | None, artifact: BlobRef | None, uow: Uow) -> None:
        model = await uow.store.models.get(WorkspaceId(row.workspace_id), row.model_id, lock=True)
        if model is None:
            raise ValueError(f"job {row.id} has no model")
        if row.status == "completed" and artifact is not None:
            await self._complete(row, model, artifact, uow)
            return
        reason = error or ("it was cancelled" if row.status == "cancelled" else "no reason was given")
        row.error = reason
        if row.kind == "merge":
            model.status, model.error = "error", reason
        uow.emit(
            JobFailed(
                workspace_id=WorkspaceId(row.workspace_id),
                job_id=JobId(row.id),
                model_id=ModelId(model.id),
                error=reason,
            )
        )

    async def _complete(self, row: JobRow, model: ModelRow, artifact: BlobRef, uow: Uow) -> None:
        workspace, model_id = WorkspaceId(row.workspace_id), ModelId(model.id)
        if row.kind == "export":
            model.export_json = artifact.model_dump_json()
            uow.emit(ModelExported(workspace_id=workspace, model_id=model_id))
            return
        manifest = await read_manifest(self._blobs, artifact)
        model.size = sum(file.blob.size for file in manifest.files)
        model.status, model.manifest_json = "ready", artifact.model_dump_json()
        checkpoint = CheckpointId(model.checkpoint_id)
        uow.emit(ModelReady(workspace_id=workspace, model_id=model_id, checkpoint_id=checkpoint))
