"""Projects."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import ProjectId, WorkspaceId
from services.registry.store.paging import PageOf, add_unique, page_by_id
from services.registry.tables import ProjectRow


class ProjectStore:
    """Projects that are not deleted, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: ProjectRow) -> None:
        """A new project.

        Raises:
            Conflict: the name is taken in the workspace.
        """
        await add_unique(self._session, row, f"a project is called {row.name!r} already; choose another name")

    async def get(
        self, workspace_id: WorkspaceId, project_id: ProjectId, *, lock: bool = False
    ) -> ProjectRow | None:
        """A project of a workspace; `lock` keeps it from changing until the commit."""
        query = select(ProjectRow).where(
            ProjectRow.id == project_id,
            ProjectRow.workspace_id == workspace_id,
            ProjectRow.deleted_at.is_(None),
        )
        return await self._session.scalar(query.with_for_update() if lock else query)

    async def page(self, workspace_id: WorkspaceId, *, limit: int, cursor: str | None) -> PageOf[ProjectRow]:
        """Projects of a workspace."""
        query = select(ProjectRow).where(
            ProjectRow.workspace_id == workspace_id, ProjectRow.deleted_at.is_(None)
        )
        return await page_by_id(self._session, query, ProjectRow.id, limit=limit, cursor=cursor)
