"""Queries of the scheduler. Guaranteed: the pool is changed by one replica at a time (`lock_pool`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import NodeId, WorkId, WorkspaceId
from services.scheduler.domain import ACTIVE
from services.scheduler.tables import LeaseRow, NodeRow, QueueRow

LIST_LIMIT = 1000
"""Rows that one answer about the pool holds at most."""
_POOL_LOCK = 7_301_001


class SchedulerStore:
    """Nodes, queue and leases, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def lock_pool(self) -> None:
        """Wait until no other replica decides about the pool; held until the transaction ends."""
        if self._session.get_bind().dialect.name == "postgresql":
            await self._session.execute(text(f"SELECT pg_advisory_xact_lock({_POOL_LOCK})"))

    async def node(self, node_id: NodeId) -> NodeRow | None:
        """A node."""
        return await self._session.get(NodeRow, node_id)

    async def nodes(self) -> Sequence[NodeRow]:
        """Every node."""
        return (await self._session.scalars(select(NodeRow).order_by(NodeRow.id))).all()

    async def add(self, row: NodeRow | QueueRow | LeaseRow) -> None:
        """A new row."""
        self._session.add(row)
        await self._session.flush()

    async def waiting(self) -> Sequence[QueueRow]:
        """The queue, in no order of importance."""
        return (await self._session.scalars(select(QueueRow).order_by(QueueRow.queued_at))).all()

    async def entry(self, work_id: WorkId) -> QueueRow | None:
        """A work's place in the queue."""
        return await self._session.get(QueueRow, work_id)

    async def dequeue(self, work_id: WorkId) -> bool:
        """Take a work out of the queue; whether it was there (and no other replica took it out first)."""
        gone = delete(QueueRow).where(QueueRow.work_id == work_id).returning(QueueRow.work_id)
        return await self._session.scalar(gone) is not None

    async def active_leases(
        self, node_id: NodeId | None = None, *, for_change: bool = False
    ) -> Sequence[LeaseRow]:
        """Leases that hold devices, of one node or of all."""
        query = select(LeaseRow).where(LeaseRow.state.in_(sorted(ACTIVE)))
        if node_id is not None:
            query = query.where(LeaseRow.node_id == node_id)
        if for_change:
            query = query.with_for_update()
        return (await self._session.scalars(query.order_by(LeaseRow.granted_at))).all()

    async def active_lease(self, work_id: WorkId) -> LeaseRow | None:
        """The lease that a work holds, for change."""
        query = select(LeaseRow).where(LeaseRow.work_id == work_id, LeaseRow.state.in_(sorted(ACTIVE)))
        return await self._session.scalar(query.with_for_update())

    async def lease(self, lease_id: str) -> LeaseRow | None:
        """A lease, for change."""
        return await self._session.get(LeaseRow, lease_id, with_for_update=True)

    async def lease_of_epoch(self, work_id: WorkId, epoch: int) -> LeaseRow | None:
        """The lease of one attempt, for change."""
        query = select(LeaseRow).where(LeaseRow.work_id == work_id, LeaseRow.epoch == epoch)
        return await self._session.scalar(query.with_for_update())

    async def newest_epoch(self, work_id: WorkId) -> int:
        """The highest epoch that a work was ever given; 0 when none."""
        query = select(func.max(LeaseRow.epoch)).where(LeaseRow.work_id == work_id)
        return await self._session.scalar(query) or 0

    async def note_process(self, lease_id: str, pid: int, started: str) -> None:
        """Remember the process of a lease."""
        await self._session.execute(
            update(LeaseRow).where(LeaseRow.id == lease_id).values(pid=pid, pid_started=started)
        )

    async def note_reasons(self, reasons: Sequence[tuple[str, str]]) -> None:
        """Write down positions and reasons of what waits, where they changed."""
        known = {row.work_id: row for row in await self.waiting()}
        for position, (work_id, reason) in enumerate(reasons, start=1):
            row = known.get(work_id)
            if row is not None and (row.position, row.reason) != (position, reason):
                row.position, row.reason = position, reason

    async def leases_of_workspace(self, workspace_id: WorkspaceId | None) -> Sequence[LeaseRow]:
        """Leases that hold devices, of a workspace or (None) of all."""
        query = select(LeaseRow).where(LeaseRow.state.in_(sorted(ACTIVE)))
        if workspace_id is not None:
            query = query.where(LeaseRow.workspace_id == workspace_id)
        return (await self._session.scalars(query.limit(LIST_LIMIT))).all()

    async def queue_of_workspace(self, workspace_id: WorkspaceId | None) -> Sequence[QueueRow]:
        """Waiting work of a workspace or (None) of all, first come first."""
        query = select(QueueRow).order_by(QueueRow.position, QueueRow.queued_at)
        if workspace_id is not None:
            query = query.where(QueueRow.workspace_id == workspace_id)
        return (await self._session.scalars(query.limit(LIST_LIMIT))).all()

    async def mark_lost_nodes(self, before: datetime) -> Sequence[NodeRow]:
        """Nodes not seen since `before`, marked lost now."""
        query = select(NodeRow).where(NodeRow.state == "ready", NodeRow.last_seen < before)
        rows = (await self._session.scalars(query)).all()
        for row in rows:
            row.state = "lost"
        return rows

    async def forget_nodes(self, before: datetime) -> None:
        """Drop nodes that were not seen since `before` and hold no lease: machines that were renamed or taken away."""
        busy = select(LeaseRow.node_id).where(LeaseRow.state.in_(sorted(ACTIVE)))
        await self._session.execute(
            delete(NodeRow).where(
                NodeRow.state == "lost", NodeRow.last_seen < before, NodeRow.id.notin_(busy)
            )
        )
