"""Base models: folders of the operator's machine, copied into the blob store in the background."""

from __future__ import annotations

import asyncio

from libs.common.blobs import BlobStore
from libs.common.blobs.folders import upload_folder
from libs.common.consuming import Work
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.models import (
    BaseModelPage,
    BaseModelReady,
    BaseModelRegistered,
    BaseModelRejected,
    BaseModelView,
    GetBaseModel,
    ListBaseModels,
    RegisterBaseModel,
)
from libs.common.contracts.requests import Caller
from libs.common.errors import Invalid, NotFound
from libs.common.identifiers import ModelId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.handlers.last_delivery import SORRY, give_up, is_last
from services.registry.model_folders import chosen_files, find_folder, stage
from services.registry.scratch import Scratch
from services.registry.store import RegistryStore
from services.registry.tables import BaseModelRow
from services.registry.views import base_model_view

Uow = UnitOfWork[RegistryStore]


class Registration:
    """Registers folders below the model store and the operator's model roots."""

    def __init__(self, platform: Platform) -> None:
        self._roots = (platform.settings.model_store, *platform.settings.model_roots)

    async def __call__(self, request: RegisterBaseModel, caller: Caller, uow: Uow) -> BaseModelView:
        """Register a folder.

        Raises:
            Invalid: there is no such folder below a root, or it holds no model that can be trained.
            Conflict: the name is taken.
        """
        folder = await asyncio.to_thread(find_folder, request.folder, self._roots)
        await asyncio.to_thread(chosen_files, folder, self._roots)
        row = BaseModelRow(
            id=uow.new_id("mdl"),
            workspace_id=caller.workspace(),
            name=request.name,
            source=request.folder,
            licence=request.licence,
            status="pending",
            size=0,
            created_at=uow.now(),
        )
        await uow.store.models.add_base(row)
        uow.emit(BaseModelRegistered(workspace_id=caller.workspace(), model_id=ModelId(row.id)))
        return base_model_view(row)


async def list_base_models(request: ListBaseModels, caller: Caller, store: RegistryStore) -> BaseModelPage:
    """Base models of the workspace."""
    page = await store.models.page_of_bases(caller.workspace(), limit=request.limit, cursor=request.cursor)
    return BaseModelPage(items=[base_model_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_base_model(request: GetBaseModel, caller: Caller, store: RegistryStore) -> BaseModelView:
    """One base model.

    Raises:
        NotFound: there is none in the workspace.
    """
    row = await store.models.base(caller.workspace(), request.model_id)
    if row is None:
        raise NotFound(f"no base model {request.model_id} in this workspace")
    return base_model_view(row)


class Copying:
    """Copies registered folders into the blob store."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs
        self._scratch = Scratch(platform.settings)
        self._roots = (platform.settings.model_store, *platform.settings.model_roots)

    async def __call__(self, fact: BaseModelRegistered, work: Work[RegistryStore]) -> None:
        """Copy, and end as ready or with the reason why not."""
        async with work.unit_of_work() as uow:
            row = await uow.store.models.base_for_change(fact.model_id)
            if row is None or row.status not in ("pending", "processing"):
                return
            row.status = "processing"
            source, attributes = row.source, {"name": row.name, "licence": row.licence}
        error: str | None = None
        copied: tuple[BlobRef, int] | None = None
        try:
            copied = await self._copy(fact.model_id, source, attributes)
        except Invalid as invalid:
            error = invalid.message
        except Exception as failure:
            if not is_last(work):
                raise
            give_up(f"copy of base model {fact.model_id}", failure)
            error = SORRY
        async with work.finish() as uow:
            await _end(fact, copied, error, uow)

    async def _copy(self, model_id: ModelId, source: str, attributes: dict[str, str]) -> tuple[BlobRef, int]:
        """The manifest's reference and the bytes of all files."""
        folder = await asyncio.to_thread(find_folder, source, self._roots)
        files = await asyncio.to_thread(chosen_files, folder, self._roots)
        size = sum(await asyncio.to_thread(lambda: [path.stat().st_size for path in files.values()]))
        async with self._scratch.folder("model") as staged:
            await asyncio.to_thread(stage, files, staged)
            prefix = f"base-models/{model_id}"
            manifest = await upload_folder(
                self._blobs, staged, prefix, kind="base_model", attributes=dict(attributes)
            )
        return manifest, size


async def _end(
    fact: BaseModelRegistered, copied: tuple[BlobRef, int] | None, error: str | None, uow: Uow
) -> None:
    row = await uow.store.models.base_for_change(fact.model_id)
    if row is None:
        return
    if copied is not None:
        row.status, row.manifest_json, row.size = "ready", copied[0].model_dump_json(), copied[1]
        uow.emit(BaseModelReady(workspace_id=fact.workspace_id, model_id=fact.model_id))
    else:
        reason = error or SORRY
        row.status, row.error = "error", reason
        uow.emit(BaseModelRejected(workspace_id=fact.workspace_id, model_id=fact.model_id, error=reason))
