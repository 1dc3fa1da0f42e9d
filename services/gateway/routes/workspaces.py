"""Workspaces: made by the operator, seen by their own keys."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from libs.common.contracts.workspaces import (
    NAME_PATTERN,
    CreateWorkspace,
    GetWorkspace,
    ListWorkspaces,
    WorkspacePage,
    WorkspaceView,
)
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, Limit, WorkspaceIn

router = APIRouter(prefix="/v1/workspaces", tags=["workspaces"])


class NewWorkspace(Body):
    """A workspace to make."""

    name: str = Field(pattern=NAME_PATTERN, examples=["research"])
    timezone: str = Field(default="UTC", max_length=64, examples=["Europe/Berlin"])


@router.post("", status_code=201, summary="Make a workspace")
async def create_workspace(body: NewWorkspace, ask: Command) -> WorkspaceView:
    """With the operator's key. The next call makes the workspace's first API key."""
    ask.as_operator()
    return await ask(CreateWorkspace(name=body.name, timezone=body.timezone))


@router.get("", summary="List workspaces")
async def list_workspaces(ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> WorkspacePage:
    """All of them for the operator's key, the own one for a workspace's key."""
    return await ask(ListWorkspaces(limit=limit, cursor=cursor))


@router.get("/{workspace_id}", summary="Get a workspace")
async def get_workspace(workspace_id: WorkspaceIn, ask: Ask) -> WorkspaceView:
    """By id or by name."""
    return await ask(GetWorkspace(workspace=workspace_id))
