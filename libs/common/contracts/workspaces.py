"""Workspaces, API keys and projects: what users see of them, ask and hear. Owner: registry."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from libs.common.contracts.envelope import Fact
from libs.common.contracts.requests import Caller, Done, Page, PageRequest, Reply, Request
from libs.common.identifiers import KeyId, ProjectId, SyncId, WorkspaceId

NAME_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$"
"""Workspaces and projects: 1 to 64 lower-case letters, digits and hyphens, no hyphen first or last."""


class KeyView(Reply):
    """An API key without its secret."""

    id: KeyId
    prefix: str
    description: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyPage(Page):
    """Keys of a workspace."""

    items: list[KeyView]


class WorkspaceView(Reply):
    """A workspace."""

    id: WorkspaceId
    name: str
    timezone: str
    created_at: datetime


class WorkspacePage(Page):
    """Workspaces that the caller sees."""

    items: list[WorkspaceView]


class CreateWorkspace(Request[WorkspaceView], service="registry", name="create_workspace", command=True):
    """Make a workspace (root key only)."""

    name: str
    timezone: str = "UTC"


class ListWorkspaces(PageRequest, Request[WorkspacePage], service="registry", name="list_workspaces"):
    """All for the root key, the own one for a workspace's key."""


class GetWorkspace(Request[WorkspaceView], service="registry", name="get_workspace"):
    """One workspace, by id or name."""

    workspace: str


class CreateKey(Request[KeyView], service="registry", name="create_key", command=True):
    """Make an API key of a workspace: the root key for any, a workspace's key for its own.

    The key's text is made by the gateway, which shows it once; only its digest travels.
    """

    workspace: WorkspaceId
    key_id: KeyId
    digest: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the whole key, hex")
    prefix: str
    description: str = Field(default="", max_length=256)


class ListKeys(PageRequest, Request[KeyPage], service="registry", name="list_keys"):
    """Keys of the caller's workspace."""


class RevokeKey(Request[Done], service="registry", name="revoke_key", command=True):
    """Make a key useless, at once."""

    key_id: KeyId


class Authenticated(Reply):
    """Who a key belongs to."""

    caller: Caller


class Authenticate(Request[Authenticated], service="registry", name="authenticate"):
    """Look a key up by its digest.

    Raises:
        Unauthenticated: unknown or revoked.
    """

    digest: str


class ProjectView(Reply):
    """A project and its repository."""

    id: ProjectId
    workspace_id: WorkspaceId
    name: str
    description: str
    rollout_mode: Literal["local", "remote"]
    repository: str | None
    branch: str | None
    sync_id: SyncId | None = Field(description="the last good sync")
    created_at: datetime
    updated_at: datetime


class ProjectPage(Page):
    """Projects of a workspace."""

    items: list[ProjectView]


class CreateProject(Request[ProjectView], service="registry", name="create_project", command=True):
    """Make a project."""

    name: str
    description: str = Field(default="", max_length=10_000)
    rollout_mode: Literal["local"] = "local"


class ListProjects(PageRequest, Request[ProjectPage], service="registry", name="list_projects"):
    """Projects of the caller's workspace."""


class GetProject(Request[ProjectView], service="registry", name="get_project"):
    """One project."""

    project_id: ProjectId


class DeleteProject(Request[Done], service="registry", name="delete_project", command=True):
    """Delete a project; a Conflict while runs of it are active."""

    project_id: ProjectId


class ConnectRepository(Request[ProjectView], service="registry", name="connect_repository", command=True):
    """Name the git repository of a project."""

    project_id: ProjectId
    url: str
    branch: str | None = Field(default=None, description="None: the remote's default branch")


class WorkspaceCreated(Fact, key="workspace.created", subject="workspace_id"):
    """A workspace exists."""

    name: str


class ProjectCreated(Fact, key="project.created", subject="project_id"):
    """A project exists."""

    project_id: ProjectId
    name: str


class ProjectDeleted(Fact, key="project.deleted", subject="project_id"):
    """A project is gone."""

    project_id: ProjectId


class KeyRevoked(Fact, key="key.revoked", subject="key_id"):
    """A key no longer opens anything: whoever caches keys forgets it."""

    key_id: KeyId
    digest: str
