"""Exactly-once effects over at-least-once delivery: a fact's id is recorded in the transaction of its effect."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.envelope import Envelope, Fact, FactT
from libs.common.contracts.requests import Caller, Reply, ReplyT, Request, RequestMessage
from libs.common.database import Database
from libs.common.errors import Conflict
from libs.common.tables import DeadLetterRow, InboxRow, ReplyRow
from libs.common.unit_of_work import StoreT, UnitOfWork, UnitsOfWork

RequestT = TypeVar("RequestT", bound=Request[Any])

Handle = Callable[[FactT, UnitOfWork[StoreT]], Awaitable[None]]
"""Decides and saves in one unit of work; touches nothing else."""


class AlreadyHandled(Exception):
    """Another delivery of the same fact came first; its effect stands."""


class Work(Generic[StoreT]):
    """What a working handler gets: it may take long and touch the outside, and ends in one unit of work.

    `finish` is that last unit of work: it records the fact as handled. A handler must be safe to run again from its
    start, since a crash before `finish` brings the fact back.
    """

    def __init__(self, units: UnitsOfWork[StoreT], queue: str, event_id: str, delivery: int) -> None:
        self._units = units
        self._queue = queue
        self._event_id = event_id
        self.delivery = delivery
        self.finished = False

    @asynccontextmanager
    async def unit_of_work(self) -> AsyncGenerator[UnitOfWork[StoreT]]:
        """A unit of work on the way."""
        async with self._units.begin() as uow:
            yield uow

    @asynccontextmanager
    async def finish(self) -> AsyncGenerator[UnitOfWork[StoreT]]:
        """The unit of work that ends the handling.

        Raises:
            AlreadyHandled: another delivery ended it first; the runtime takes that as success.
        """
        async with self._units.begin() as uow:
            if not await _record(uow.session, self._queue, self._event_id, uow):
                raise AlreadyHandled
            yield uow
        self.finished = True


WorkOn = Callable[[FactT, Work[StoreT]], Awaitable[None]]


async def handle_once(
    units: UnitsOfWork[StoreT], queue: str, envelope: Envelope, handle: Handle[Fact, StoreT]
) -> None:
    """Run `handle` and record the fact in one transaction; a recorded fact changes nothing."""
    async with units.begin() as uow:
        if await _record(uow.session, queue, envelope.id, uow):
            uow.cause = envelope
            await handle(envelope.fact(), uow)


async def work_once(
    units: UnitsOfWork[StoreT],
    database: Database,
    queue: str,
    envelope: Envelope,
    delivery: int,
    work_on: WorkOn[Fact, StoreT],
) -> None:
    """Run a working handler unless the fact is recorded, and record it at the latest when it returns."""
    async with database.read() as session:
        if await session.get(InboxRow, (queue, envelope.id)) is not None:
            return
    work = Work(units, queue, envelope.id, delivery)
    with suppress(AlreadyHandled):
        await work_on(envelope.fact(), work)
        if not work.finished:
            async with work.finish():
                pass


async def _record(session: AsyncSession, queue: str, event_id: str, uow: UnitOfWork[Any]) -> bool:
    """Whether the fact was new."""
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    row = {"queue": queue, "event_id": event_id, "handled_at": uow.now()}
    result = await session.execute(
        insert(InboxRow).values(row).on_conflict_do_nothing().returning(InboxRow.event_id)
    )
    return result.scalar_one_or_none() is not None


async def bury(units: UnitsOfWork[Any], queue: str, envelope: Envelope, deliveries: int, error: str) -> None:
    """Keep a fact that cannot be handled, for an operator to read and replay."""
    async with units.begin() as uow:
        await uow.session.merge(
            DeadLetterRow(
                id=f"{queue}:{envelope.id}"[:64],
                queue=queue,
                type=envelope.type,
                subject=envelope.subject,
                attempts=deliveries,
                error=error,
                envelope=envelope.model_dump_json(),
                died_at=uow.now(),
            )
        )


Answer = Callable[[RequestT, Caller, UnitOfWork[StoreT]], Awaitable[ReplyT]]
"""Decides and answers in one unit of work."""


async def answer_once(
    units: UnitsOfWork[StoreT],
    message: RequestMessage,
    request: Request[Any],
    answer: Callable[[Any, Caller, UnitOfWork[StoreT]], Awaitable[Reply]],
) -> Reply:
    """Answer in one transaction; a command with a known idempotency key gets its first reply.

    Raises:
        Conflict: the key was used for another request.
    """
    async with units.begin() as uow:
        key = message.idempotency_key if type(request).COMMAND else None
        if key is None:
            return await answer(request, message.caller, uow)
        scope = f"{message.name}:{message.caller.workspace_id or message.caller.kind}"
        digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        known = await uow.session.scalar(
            select(ReplyRow).where(ReplyRow.scope == scope, ReplyRow.idempotency_key == key)
        )
        if known is not None:
            if known.request_digest != digest:
                raise Conflict(f"Idempotency-Key {key!r} was used for another request; send a new key")
            return type(request).REPLY.model_validate_json(known.reply)
        reply = await answer(request, message.caller, uow)
        uow.session.add(
            ReplyRow(
                scope=scope,
                idempotency_key=key,
                request_digest=digest,
                reply=reply.model_dump_json(),
                created_at=uow.now(),
            )
        )
        return reply
