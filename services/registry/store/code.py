"""Syncs and what they found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.code import Finding
from libs.common.identifiers import ProjectId, SyncId, WorkspaceId
from services.registry.store.paging import PageOf, page_by_id
from services.registry.tables import FindingRow, SyncRow


class CodeStore:
    """Syncs, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: SyncRow) -> None:
        """A new sync."""
        self._session.add(row)
        await self._session.flush()

    async def get(self, workspace_id: WorkspaceId, sync_id: SyncId) -> SyncRow | None:
        """A sync of a workspace."""
        query = select(SyncRow).where(SyncRow.id == sync_id, SyncRow.workspace_id == workspace_id)
        return await self._session.scalar(query)

    async def for_change(self, sync_id: SyncId) -> SyncRow | None:
        """A sync that the registry itself works on, locked."""
        return await self._session.get(SyncRow, sync_id, with_for_update=True)

    async def page(
        self, workspace_id: WorkspaceId, project_id: ProjectId, *, limit: int, cursor: str | None
    ) -> PageOf[SyncRow]:
        """Syncs of a project."""
        query = select(SyncRow).where(SyncRow.project_id == project_id, SyncRow.workspace_id == workspace_id)
        return await page_by_id(self._session, query, SyncRow.id, limit=limit, cursor=cursor)

    async def add_findings(self, sync_id: SyncId, findings: Sequence[Finding]) -> None:
        """What a sync found, in order."""
        self._session.add_all(
            FindingRow(sync_id=sync_id, position=position, **finding.model_dump())
            for position, finding in enumerate(findings)
        )
        await self._session.flush()

    async def findings(self, sync_ids: Sequence[str]) -> dict[str, list[Finding]]:
        """Findings by sync."""
        found: dict[str, list[Finding]] = defaultdict(list)
        query = select(FindingRow).where(FindingRow.sync_id.in_(sync_ids))
        for row in await self._session.scalars(query.order_by(FindingRow.sync_id, FindingRow.position)):
            found[row.sync_id].append(Finding.model_validate(row, from_attributes=True))
        return found
