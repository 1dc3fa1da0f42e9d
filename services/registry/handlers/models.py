"""Checkpoints, output models, and the jobs that make them."""

from __future__ import annotations

import json

from libs.common.blobs import BlobStore
from libs.common.blobs.folders import read_manifest
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.models import (
    CheckpointPage,
    CheckpointView,
    ExportModel,
    GetCheckpoint,
    GetJob,
    GetModel,
    JobView,
    ListCheckpoints,
    ListModelFiles,
    ListModels,
    MergeCheckpoint,
    ModelFiles,
    ModelPage,
    ModelView,
)
from libs.common.contracts.recipes import ExportOrder, MergeOrder, Recipe
from libs.common.contracts.requests import Caller
from libs.common.errors import Conflict, NotFound
from libs.common.identifiers import CheckpointId, JobId, ModelId, RunId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.registry.handlers.job_facts import queued
from services.registry.handlers.runs import run_of
from services.registry.store import RegistryStore
from services.registry.tables import CheckpointRow, JobRow, ModelRow
from services.registry.views import checkpoint_view, job_view, model_view

Uow = UnitOfWork[RegistryStore]


async def list_checkpoints(request: ListCheckpoints, caller: Caller, store: RegistryStore) -> CheckpointPage:
    """Checkpoints of a run, the furthest first."""
    run = await run_of(request.run_id, caller, store)
    page = await store.checkpoints.page(RunId(run.id), limit=request.limit, cursor=request.cursor)
    models = await store.models.ids_by_checkpoint([row.id for row in page.rows])
    items = [checkpoint_view(row, models.get(row.id)) for row in page.rows]
    return CheckpointPage(items=items, next_cursor=page.next_cursor)


async def _checkpoint_of(checkpoint_id: CheckpointId, caller: Caller, store: RegistryStore) -> CheckpointRow:
    row = await store.checkpoints.get(caller.workspace(), checkpoint_id)
    if row is None:
        raise NotFound(f"no checkpoint {checkpoint_id} in this workspace")
    return row


async def get_checkpoint(request: GetCheckpoint, caller: Caller, store: RegistryStore) -> CheckpointView:
    """One checkpoint."""
    row = await _checkpoint_of(request.checkpoint_id, caller, store)
    models = await store.models.ids_by_checkpoint([row.id])
    return checkpoint_view(row, models.get(row.id))


async def model_of(
    model_id: ModelId, caller: Caller, store: RegistryStore, *, lock: bool = False
) -> ModelRow:
    """An output model of the caller's workspace.

    Raises:
        NotFound: there is none.
    """
    row = await store.models.get(caller.workspace(), model_id, lock=lock)
    if row is None:
        raise NotFound(f"no model {model_id} in this workspace")
    return row


async def list_models(request: ListModels, caller: Caller, store: RegistryStore) -> ModelPage:
    """Output models, newest first."""
    page = await store.models.page(
        caller.workspace(), run_id=request.run_id, limit=request.limit, cursor=request.cursor
    )
    return ModelPage(items=[model_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_model(request: GetModel, caller: Caller, store: RegistryStore) -> ModelView:
    """One output model."""
    return model_view(await model_of(request.model_id, caller, store))


async def get_job(request: GetJob, caller: Caller, store: RegistryStore) -> JobView:
    """One job.

    Raises:
        NotFound: there is none in the workspace.
    """
    row = await store.models.job(caller.workspace(), request.job_id)
    if row is None:
        raise NotFound(f"no job {request.job_id} in this workspace")
    return job_view(row)


class ModelFileList:
    """Reads the manifests of exports."""

    def __init__(self, platform: Platform, units: UnitsOfWork[RegistryStore]) -> None:
        self._blobs: BlobStore = platform.blobs
        self._units = units

    async def __call__(self, request: ListModelFiles, caller: Caller) -> ModelFiles:
        """The files of a model's export.

        Raises:
            NotFound: there is no such model.
            Conflict: it has not been exported.
        """
        async with self._units.read() as store:
            row = await store.models.get(caller.workspace(), request.model_id)
        if row is None:
            raise NotFound(f"no model {request.model_id} in this workspace")
        if row.export_json is None:
            raise Conflict(f"model {row.id} is not exported yet; export it first")
        manifest = await read_manifest(self._blobs, BlobRef.model_validate_json(row.export_json))
        return ModelFiles(files=manifest.files)


class Jobs:
    """Starts merges and exports. Asking for one that is under way or done answers that one."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs

    async def merge(self, request: MergeCheckpoint, caller: Caller, uow: Uow) -> JobView:
        """Merge a checkpoint's adapter into its base model."""
        checkpoint = await _checkpoint_of(request.checkpoint_id, caller, uow.store)
        run = await run_of(RunId(checkpoint.run_id), caller, uow.store, lock=True)
        known = await uow.store.models.of_checkpoint(checkpoint.id)
        job = await uow.store.models.last_job(known.id, "merge") if known is not None else None
        if job is not None:
            return job_view(job)
        recipe = Recipe.model_validate_json(run.recipe_json)
        model = ModelRow(
            id=uow.new_id("mdl"),
            workspace_id=run.workspace_id,
            name=f"{run.name or run.id}-step-{checkpoint.step}",
            run_id=run.id,
            checkpoint_id=checkpoint.id,
            base_model_id=recipe.base_model.model_id,
            status="pending",
            size=0,
            created_at=uow.now(),
        )
        await uow.store.models.add(model)
        order = MergeOrder(
            job_id=JobId(uow.new_id("job")),
            workspace_id=caller.workspace(),
            model_id=ModelId(model.id),
            checkpoint_id=request.checkpoint_id,
            base_model=recipe.base_model,
            checkpoint=BlobRef.model_validate_json(checkpoint.manifest_json),
        )
        return await self._start(order, uow)

    async def export(self, request: ExportModel, caller: Caller, uow: Uow) -> JobView:
        """Write a merged model as a Hugging Face folder.

        Raises:
            Conflict: the model is not merged yet.
        """
        model = await model_of(request.model_id, caller, uow.store, lock=True)
        if model.status != "ready" or model.manifest_json is None:
            raise Conflict(f"model {model.id} is not ready (status {model.status}); wait for its merge")
        job = await uow.store.models.last_job(model.id, "export")
        if job is not None and job.status not in ("failed", "cancelled"):
            return job_view(job)
        run = await run_of(RunId(model.run_id), caller, uow.store)
        checkpoint = await _checkpoint_of(CheckpointId(model.checkpoint_id), caller, uow.store)
        recipe = Recipe.model_validate_json(run.recipe_json)
        order = ExportOrder(
            job_id=JobId(uow.new_id("job")),
            workspace_id=caller.workspace(),
            model_id=request.model_id,
            model=BlobRef.model_validate_json(model.manifest_json),
            base_model=recipe.base_model,
            recipe=recipe.model_dump(mode="json"),
            metrics=json.loads(checkpoint.metrics_json),
        )
        return await self._start(order, uow)

    async def _start(self, order: MergeOrder | ExportOrder, uow: Uow) -> JobView:
        # A small write of content that is named by the job's own id: repeating it, or leaving it behind, harms nobody.
        kept = await self._blobs.put_bytes(
            f"jobs/{order.job_id}/order.json", order.model_dump_json().encode()
        )
        row = JobRow(
            id=order.job_id,
            workspace_id=order.workspace_id,
            kind=order.kind,
            model_id=order.model_id,
            status="queued",
            order_json=kept.model_dump_json(),
            epoch=0,
            attempt_over=True,
            losses=0,
            created_at=uow.now(),
        )
        await uow.store.models.add_job(row)
        uow.emit(queued(row))
        return job_view(row)
