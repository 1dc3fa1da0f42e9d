"""Synced code of projects: every sync is a version with its findings and errors. Owner: registry."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from libs.common.contracts.envelope import Contract, Fact
from libs.common.contracts.requests import Page, PageRequest, Reply, Request
from libs.common.identifiers import ProjectId, SyncId


class Finding(Contract):
    """Something that a sync found: a reward function, a rubric, the tool server, a tool."""

    kind: Literal["reward", "rubric", "tool_server", "tool"]
    name: str
    file: str
    line: int
    function: str | None = None
    description: str = ""


class SyncError(Contract):
    """A fault of the repository."""

    file: str | None
    line: int | None
    message: str
    severity: Literal["error", "warning"] = "error"


class SyncView(Reply):
    """One sync: a version of the project's code."""

    id: SyncId
    project_id: ProjectId
    status: Literal["pending", "running", "success", "failed"]
    commit: str | None
    author: str | None
    message: str | None
    findings: list[Finding]
    errors: list[SyncError]
    created_at: datetime
    ended_at: datetime | None


class SyncPage(Page):
    """Syncs of a project, newest first."""

    items: list[SyncView]


class SyncRepository(Request[SyncView], service="registry", name="sync_repository", command=True):
    """Start a sync; it goes on in the background."""

    project_id: ProjectId
    commit: str | None = Field(default=None, pattern="^[0-9a-f]{7,40}$")


class ListSyncs(PageRequest, Request[SyncPage], service="registry", name="list_syncs"):
    """Syncs of a project."""

    project_id: ProjectId


class GetSync(Request[SyncView], service="registry", name="get_sync"):
    """One sync."""

    sync_id: SyncId


class SyncRequested(Fact, key="repository.sync_requested", subject="project_id"):
    """A sync was asked for."""

    project_id: ProjectId
    sync_id: SyncId


class RepositorySynced(Fact, key="repository.synced", subject="project_id"):
    """A sync ended well."""

    project_id: ProjectId
    sync_id: SyncId
    commit: str


class RepositorySyncFailed(Fact, key="repository.sync_failed", subject="project_id"):
    """A sync ended with errors."""

    project_id: ProjectId
    sync_id: SyncId
    errors: list[SyncError]
