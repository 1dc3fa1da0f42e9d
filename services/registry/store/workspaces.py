"""Workspaces and API keys."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import KeyId, WorkspaceId
from services.registry.store.paging import PageOf, add_unique, page_by_id
from services.registry.tables import KeyRow, WorkspaceRow


class WorkspaceStore:
    """Workspaces and keys, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: WorkspaceRow) -> None:
        """A new workspace.

        Raises:
            Conflict: the name is taken.
        """
        await add_unique(
            self._session, row, f"a workspace is called {row.name!r} already; choose another name"
        )

    async def get(self, workspace_id: WorkspaceId) -> WorkspaceRow | None:
        """A workspace by id."""
        return await self._session.get(WorkspaceRow, workspace_id)

    async def find(self, id_or_name: str) -> WorkspaceRow | None:
        """A workspace by id or by name."""
        by_either = (WorkspaceRow.id == id_or_name) | (WorkspaceRow.name == id_or_name)
        return await self._session.scalar(select(WorkspaceRow).where(by_either))

    async def page(self, only: WorkspaceId | None, *, limit: int, cursor: str | None) -> PageOf[WorkspaceRow]:
        """All workspaces, or the only one that the caller sees."""
        query = select(WorkspaceRow)
        if only is not None:
            query = query.where(WorkspaceRow.id == only)
        return await page_by_id(self._session, query, WorkspaceRow.id, limit=limit, cursor=cursor)

    async def add_key(self, row: KeyRow) -> None:
        """A new key.

        Raises:
            Conflict: its id or digest exists.
        """
        await add_unique(self._session, row, "this key exists already; make another one")

    async def key(self, workspace_id: WorkspaceId, key_id: KeyId) -> KeyRow | None:
        """A key of a workspace."""
        query = select(KeyRow).where(KeyRow.id == key_id, KeyRow.workspace_id == workspace_id)
        return await self._session.scalar(query.with_for_update())

    async def key_by_digest(self, digest: str) -> KeyRow | None:
        """The key with that digest."""
        return await self._session.scalar(select(KeyRow).where(KeyRow.digest == digest))

    async def touch_key(self, key_id: KeyId, at: datetime) -> None:
        """Write down that a key was used."""
        await self._session.execute(update(KeyRow).where(KeyRow.id == key_id).values(last_used_at=at))

    async def page_of_keys(
        self, workspace_id: WorkspaceId, *, limit: int, cursor: str | None
    ) -> PageOf[KeyRow]:
        """Keys of a workspace, revoked ones too."""
        query = select(KeyRow).where(KeyRow.workspace_id == workspace_id)
        return await page_by_id(self._session, query, KeyRow.id, limit=limit, cursor=cursor)
