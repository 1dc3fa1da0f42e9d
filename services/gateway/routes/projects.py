"""Projects and the git repository of each."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from libs.common.contracts.workspaces import (
    NAME_PATTERN,
    ConnectRepository,
    CreateProject,
    DeleteProject,
    GetProject,
    ListProjects,
    ProjectPage,
    ProjectView,
)
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, Limit, ProjectIn

router = APIRouter(prefix="/v1/projects", tags=["projects"])


class NewProject(Body):
    """A project to make."""

    name: str = Field(pattern=NAME_PATTERN, examples=["calculator"])
    description: str = Field(default="", max_length=10_000)
    rollout_mode: Literal["local"] = Field(
        default="local", description="local: the platform runs the agent loop"
    )


class Repository(Body):
    """The git repository that holds a project's reward functions and tools."""

    url: str = Field(min_length=1, max_length=2048, examples=["https://github.com/acme/calculator-workspace"])
    branch: str | None = Field(
        default=None, max_length=255, description="absent: the remote's default branch"
    )


@router.post("", status_code=201, summary="Make a project")
async def create_project(body: NewProject, ask: Command) -> ProjectView:
    """Its name is unique in the workspace."""
    return await ask(
        CreateProject(name=body.name, description=body.description, rollout_mode=body.rollout_mode)
    )


@router.get("", summary="List projects")
async def list_projects(ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> ProjectPage:
    """Projects of the workspace."""
    return await ask(ListProjects(limit=limit, cursor=cursor))


@router.get("/{project_id}", summary="Get a project")
async def get_project(project_id: ProjectIn, ask: Ask) -> ProjectView:
    """A project, its repository and its last good sync."""
    return await ask(GetProject(project_id=project_id))


@router.delete("/{project_id}", status_code=204, summary="Delete a project")
async def delete_project(project_id: ProjectIn, ask: Command) -> None:
    """A conflict while runs of it are active."""
    await ask(DeleteProject(project_id=project_id))


@router.put("/{project_id}/repository", summary="Connect a repository")
async def connect_repository(project_id: ProjectIn, body: Repository, ask: Command) -> ProjectView:
    """Names the repository; the next sync reads it."""
    return await ask(ConnectRepository(project_id=project_id, url=body.url, branch=body.branch))
