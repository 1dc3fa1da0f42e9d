"""Syncs: each is a version of a project's code, with what was found in it and what is wrong with it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as BodyParameter
from pydantic import Field

from libs.common.contracts.code import GetSync, ListSyncs, SyncPage, SyncRepository, SyncView
from libs.common.errors import NotFound
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, Limit, ProjectIn, SyncIn

router = APIRouter(prefix="/v1/projects/{project_id}/syncs", tags=["syncs"])


class NewSync(Body):
    """What to sync."""

    commit: str | None = Field(
        default=None, pattern="^[0-9a-f]{7,40}$", description="absent: the newest commit of the branch"
    )


@router.post("", status_code=201, summary="Sync the repository")
async def create_sync(
    project_id: ProjectIn, ask: Command, body: Annotated[NewSync | None, BodyParameter()] = None
) -> SyncView:
    """Starts a sync, which goes on in the background: its status tells when it has ended."""
    return await ask(SyncRepository(project_id=project_id, commit=body.commit if body else None))


@router.get("", summary="List syncs")
async def list_syncs(project_id: ProjectIn, ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> SyncPage:
    """Syncs of a project, newest first."""
    return await ask(ListSyncs(project_id=project_id, limit=limit, cursor=cursor))


@router.get("/{sync_id}", summary="Get a sync")
async def get_sync(project_id: ProjectIn, sync_id: SyncIn, ask: Ask) -> SyncView:
    """The commit, the findings with file and line, and the errors."""
    sync = await ask(GetSync(sync_id=sync_id))
    if sync.project_id != project_id:
        raise NotFound(f"no sync {sync_id} in project {project_id}")
    return sync
