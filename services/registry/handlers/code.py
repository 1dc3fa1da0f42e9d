"""Syncs: asked for, carried out in the background, kept with what they found."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from libs.common.blobs import BlobStore
from libs.common.consuming import Work
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.code import (
    GetSync,
    ListSyncs,
    RepositorySynced,
    RepositorySyncFailed,
    SyncError,
    SyncPage,
    SyncRepository,
    SyncRequested,
    SyncView,
)
from libs.common.contracts.requests import Caller
from libs.common.errors import Conflict, NotFound, OsmosisError
from libs.common.identifiers import ProjectId, SyncId, WorkspaceId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.gitsync import (
    Checkout,
    Discovered,
    SyncFailed,
    Wanted,
    check_out,
    discover,
    parse_remote,
)
from services.registry.handlers.last_delivery import SORRY, give_up, is_last
from services.registry.handlers.projects import project_of
from services.registry.scratch import Scratch
from services.registry.store import RegistryStore
from services.registry.tables import SyncRow
from services.registry.views import SYNC_ERRORS, sync_view

Uow = UnitOfWork[RegistryStore]
MAX_ERRORS = 200


async def sync_repository(request: SyncRepository, caller: Caller, uow: Uow) -> SyncView:
    """Ask for a sync.

    Raises:
        Conflict: the project has no repository.
    """
    project = await project_of(request.project_id, caller, uow.store)
    if project.repository is None:
        raise Conflict("the project has no repository; connect one first")
    row = SyncRow(
        id=uow.new_id("sync"),
        workspace_id=project.workspace_id,
        project_id=project.id,
        status="pending",
        repository=project.repository,
        branch=project.branch,
        wanted_commit=request.commit,
        created_at=uow.now(),
    )
    await uow.store.code.add(row)
    uow.emit(
        SyncRequested(workspace_id=caller.workspace(), project_id=request.project_id, sync_id=SyncId(row.id))
    )
    return sync_view(row, [])


async def list_syncs(request: ListSyncs, caller: Caller, store: RegistryStore) -> SyncPage:
    """Syncs of a project, newest first."""
    project = await project_of(request.project_id, caller, store)
    page = await store.code.page(
        caller.workspace(), ProjectId(project.id), limit=request.limit, cursor=request.cursor
    )
    findings = await store.code.findings([row.id for row in page.rows])
    items = [sync_view(row, findings.get(row.id, [])) for row in page.rows]
    return SyncPage(items=items, next_cursor=page.next_cursor)


async def get_sync(request: GetSync, caller: Caller, store: RegistryStore) -> SyncView:
    """One sync.

    Raises:
        NotFound: there is none in the workspace.
    """
    row = await store.code.get(caller.workspace(), request.sync_id)
    if row is None:
        raise NotFound(f"no sync {request.sync_id} in this workspace")
    findings = await store.code.findings([row.id])
    return sync_view(row, findings.get(row.id, []))


@dataclass(frozen=True)
class _Synced:
    checkout: Checkout | None
    archive: BlobRef | None
    found: Discovered


class Syncing:
    """Carries syncs out."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs
        self._scratch = Scratch(platform.settings)
        self._allow_local = platform.settings.git_allow_local

    async def __call__(self, fact: SyncRequested, work: Work[RegistryStore]) -> None:
        """Fetch, look, keep; whatever is wrong with the repository ends the sync as failed."""
        wanted = await self._begin(fact, work)
        if wanted is None:
            return
        try:
            synced = await self._sync(wanted)
        except SyncFailed as failed:
            synced = _nothing(failed.errors)
        except OsmosisError as error:
            synced = _nothing([SyncError(file=None, line=None, message=error.message)])
        except Exception as error:
            if not is_last(work):
                raise
            give_up(f"sync {fact.sync_id}", error)
            synced = _nothing([SyncError(file=None, line=None, message=SORRY)])
        async with work.finish() as uow:
            await _end(fact, synced, uow)

    async def _begin(self, fact: SyncRequested, work: Work[RegistryStore]) -> Wanted | None:
        async with work.unit_of_work() as uow:
            row = await uow.store.code.for_change(fact.sync_id)
            if row is None or row.ended_at is not None:
                return None
            row.status = "running"
            remote = parse_remote(row.repository, allow_local=self._allow_local)
            return Wanted(remote, row.branch, row.wanted_commit)

    async def _sync(self, wanted: Wanted) -> _Synced:
        async with self._scratch.folder("sync") as folder:
            checkout = await check_out(wanted, folder, allow_private=self._allow_local)
            found = await asyncio.to_thread(discover, checkout.sources, checkout.folders)
            archive = await self._keep(checkout)
        return _Synced(checkout, archive, Discovered(found.findings, [*checkout.errors, *found.errors]))

    async def _keep(self, checkout: Checkout) -> BlobRef:
        key = f"code/{checkout.sha256}.tar"
        known = await self._blobs.stat(key)
        if known is not None and known.sha256 == checkout.sha256:
            return known
        return await self._blobs.put_file(key, checkout.archive)


def _nothing(errors: list[SyncError]) -> _Synced:
    return _Synced(None, None, Discovered([], errors))


async def _end(fact: SyncRequested, synced: _Synced, uow: Uow) -> None:
    row = await uow.store.code.for_change(fact.sync_id)
    if row is None or row.ended_at is not None:
        return
    row.ended_at = uow.now()
    row.errors_json = SYNC_ERRORS.dump_json(synced.found.errors[:MAX_ERRORS]).decode()
    row.status = "success" if synced.found.usable else "failed"
    if synced.checkout is not None and synced.archive is not None:
        row.commit, row.author = synced.checkout.commit, synced.checkout.author
        row.message, row.archive_json = synced.checkout.message, synced.archive.model_dump_json()
    await uow.store.code.add_findings(fact.sync_id, synced.found.findings)
    if row.status == "success" and row.commit is not None:
        await _use(row, uow)
        uow.emit(
            RepositorySynced(
                workspace_id=fact.workspace_id,
                project_id=fact.project_id,
                sync_id=fact.sync_id,
                commit=row.commit,
            )
        )
    else:
        errors = [error for error in synced.found.errors if error.severity == "error"]
        uow.emit(
            RepositorySyncFailed(
                workspace_id=fact.workspace_id,
                project_id=fact.project_id,
                sync_id=fact.sync_id,
                errors=errors[:MAX_ERRORS],
            )
        )


async def _use(row: SyncRow, uow: Uow) -> None:
    """Make it the project's code, unless a newer sync ended first or another repository was connected meanwhile."""
    project = await uow.store.projects.get(
        WorkspaceId(row.workspace_id), ProjectId(row.project_id), lock=True
    )
    if project is None or (project.repository, project.branch) != (row.repository, row.branch):
        return
    if project.sync_id is None or project.sync_id < row.id:
        project.sync_id, project.updated_at = row.id, uow.now()
