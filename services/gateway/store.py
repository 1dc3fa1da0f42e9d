"""The log of public events: appended by one writer at a time, read by cursor.

Guaranteed: `seq` grows in the order of commit. A reader that has seen an event has seen, or can see, every event with
a smaller `seq`: no gap fills up later behind a cursor. On SQLite every transaction that writes is alone; on PostgreSQL,
where a sequence number may be committed after a later one, appending holds an advisory lock until the commit. The
facts queue has one active consumer, so the lock is free but for the moments in which a replica takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, func, select, text, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.envelope import Envelope
from libs.common.identifiers import WorkspaceId
from services.gateway.tables import EventRow, HorizonRow

_APPEND_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('osmosis-gateway-events'))")


@dataclass(frozen=True)
class LoggedEvent:
    """An event of the log. `envelope` is its CloudEvents JSON."""

    seq: int
    workspace_id: WorkspaceId
    key: str
    subject: str
    envelope: str


@dataclass(frozen=True)
class Extent:
    """Where the log begins and ends: events up to `forgotten` are gone, `newest` is the last that was given."""

    forgotten: int
    newest: int


class GatewayStore:
    """Queries of the gateway."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def append(self, envelope: Envelope, logged_at: datetime) -> None:
        """Add an event to the log."""
        if self._session.get_bind().dialect.name == "postgresql":
            await self._session.execute(_APPEND_LOCK)
        self._session.add(
            EventRow(
                event_id=envelope.id,
                workspace_id=envelope.workspaceid,
                key=envelope.routing_key,
                subject=envelope.subject,
                envelope=envelope.model_dump_json(exclude_none=True),
                logged_at=logged_at,
            )
        )

    async def of_workspace(
        self,
        workspace_id: WorkspaceId,
        *,
        after: int,
        keys: frozenset[str] | None = None,
        subject: str | None = None,
        limit: int,
    ) -> list[LoggedEvent]:
        """Events of a workspace with a `seq` above `after`, oldest first."""
        query = select(EventRow).where(EventRow.workspace_id == workspace_id, EventRow.seq > after)
        if subject is not None:
            query = query.where(EventRow.subject == subject)
            if keys is not None:
                query = query.where(EventRow.key.in_(keys))
        elif keys is not None:
            query = _of_each(query, keys, limit)
        return _logged((await self._session.scalars(query.order_by(EventRow.seq).limit(limit))).all())

    async def of_all(self, *, after: int, limit: int) -> list[LoggedEvent]:
        """Events of every workspace with a `seq` above `after`, oldest first."""
        query = select(EventRow).where(EventRow.seq > after).order_by(EventRow.seq).limit(limit)
        return _logged((await self._session.scalars(query)).all())

    async def extent(self) -> Extent:
        """Where the log begins and ends."""
        forgotten = await self._session.scalar(select(HorizonRow.seq)) or 0
        newest = await self._session.scalar(select(func.max(EventRow.seq))) or 0
        return Extent(forgotten, max(forgotten, newest))

    async def forget(self, logged_before: datetime) -> None:
        """Remove events of an age, and say so in the horizon."""
        old = EventRow.logged_at < logged_before
        highest = await self._session.scalar(select(func.max(EventRow.seq)).where(old))
        if highest is None:
            return
        # By seq, not by age: a clock that went back must not leave an older event in front of the horizon.
        await self._session.execute(delete(EventRow).where(EventRow.seq <= highest))
        await self._session.execute(update(HorizonRow).where(HorizonRow.seq < highest).values(seq=highest))


def _of_each(query: Select[EventRow], keys: frozenset[str], limit: int) -> Select[EventRow]:
    """The first events of each key by its own index, so that a rare key is not looked for among all others."""
    firsts = [query.where(EventRow.key == key).order_by(EventRow.seq).limit(limit).subquery() for key in keys]
    seqs = union_all(*(select(first.c.seq) for first in firsts))
    return select(EventRow).where(EventRow.seq.in_(seqs))


def _logged(rows: Sequence[EventRow]) -> list[LoggedEvent]:
    return [
        LoggedEvent(row.seq, WorkspaceId(row.workspace_id), row.key, row.subject, row.envelope)
        for row in rows
    ]
