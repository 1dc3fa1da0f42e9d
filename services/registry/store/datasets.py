"""Datasets."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import DatasetId, WorkspaceId
from services.registry.store.paging import PageOf, page_by_id
from services.registry.tables import DatasetRow


class DatasetStore:
    """Datasets that are not deleted, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: DatasetRow) -> None:
        """A new dataset."""
        self._session.add(row)
        await self._session.flush()

    async def get(
        self, workspace_id: WorkspaceId, dataset_id: str, *, lock: bool = False
    ) -> DatasetRow | None:
        """A dataset of a workspace; `lock` keeps it from changing until the commit."""
        query = select(DatasetRow).where(
            DatasetRow.id == dataset_id,
            DatasetRow.workspace_id == workspace_id,
            DatasetRow.status != "deleted",
        )
        return await self._session.scalar(query.with_for_update() if lock else query)

    async def for_change(self, dataset_id: DatasetId) -> DatasetRow | None:
        """A dataset that the registry itself works on, locked."""
        return await self._session.get(DatasetRow, dataset_id, with_for_update=True)

    async def page(self, workspace_id: WorkspaceId, *, limit: int, cursor: str | None) -> PageOf[DatasetRow]:
        """Datasets of a workspace."""
        query = select(DatasetRow).where(
            DatasetRow.workspace_id == workspace_id, DatasetRow.status != "deleted"
        )
        return await page_by_id(self._session, query, DatasetRow.id, limit=limit, cursor=cursor)
