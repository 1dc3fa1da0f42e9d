"""Projects and the repository of each."""

from __future__ import annotations

from libs.common.contracts.requests import Caller, Done
from libs.common.contracts.workspaces import (
    ConnectRepository,
    CreateProject,
    DeleteProject,
    GetProject,
    ListProjects,
    ProjectCreated,
    ProjectDeleted,
    ProjectPage,
    ProjectView,
)
from libs.common.errors import Conflict, NotFound
from libs.common.identifiers import ProjectId
from libs.common.unit_of_work import UnitOfWork
from services.registry.gitsync import check_branch, parse_remote
from services.registry.handlers.workspaces import check_name
from services.registry.store import RegistryStore
from services.registry.tables import ProjectRow
from services.registry.views import project_view

Uow = UnitOfWork[RegistryStore]


async def project_of(
    project_id: ProjectId, caller: Caller, store: RegistryStore, *, lock: bool = False
) -> ProjectRow:
    """A project of the caller's workspace.

    Raises:
        NotFound: there is none.
    """
    row = await store.projects.get(caller.workspace(), project_id, lock=lock)
    if row is None:
        raise NotFound(f"no project {project_id} in this workspace")
    return row


async def create_project(request: CreateProject, caller: Caller, uow: Uow) -> ProjectView:
    """Make a project.

    Raises:
        Invalid, Conflict: the name is no good, or taken.
    """
    now = uow.now()
    row = ProjectRow(
        id=uow.new_id("prj"),
        workspace_id=caller.workspace(),
        name=check_name(request.name),
        description=request.description,
        rollout_mode=request.rollout_mode,
        created_at=now,
        updated_at=now,
    )
    await uow.store.projects.add(row)
    uow.emit(ProjectCreated(workspace_id=caller.workspace(), project_id=ProjectId(row.id), name=row.name))
    return project_view(row)


async def list_projects(request: ListProjects, caller: Caller, store: RegistryStore) -> ProjectPage:
    """Projects of the workspace."""
    page = await store.projects.page(caller.workspace(), limit=request.limit, cursor=request.cursor)
    return ProjectPage(items=[project_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_project(request: GetProject, caller: Caller, store: RegistryStore) -> ProjectView:
    """One project."""
    return project_view(await project_of(request.project_id, caller, store))


async def delete_project(request: DeleteProject, caller: Caller, uow: Uow) -> Done:
    """Delete a project; its ended runs stay readable.

    Raises:
        Conflict: runs of it are active.
    """
    row = await project_of(request.project_id, caller, uow.store, lock=True)
    active = await uow.store.runs.active_of_project(row.id)
    if active:
        raise Conflict(f"runs of the project are active ({', '.join(active)}); cancel them first")
    row.deleted_at = uow.now()
    uow.emit(ProjectDeleted(workspace_id=caller.workspace(), project_id=request.project_id))
    return Done()


class RepositoryConnection:
    """Names a project's repository, within what the operator allows."""

    def __init__(self, *, allow_local: bool) -> None:
        self._allow_local = allow_local

    async def __call__(self, request: ConnectRepository, caller: Caller, uow: Uow) -> ProjectView:
        """Connect; the next sync reads it. Code of another repository or branch is not used any more.

        Raises:
            Invalid: the address or branch is not allowed.
        """
        remote = parse_remote(request.url, allow_local=self._allow_local)
        branch = check_branch(request.branch) if request.branch else None
        row = await project_of(request.project_id, caller, uow.store, lock=True)
        if (row.repository, row.branch) != (remote.url, branch):
            row.sync_id = None
        row.repository, row.branch, row.updated_at = remote.url, branch, uow.now()
        return project_view(row)
