"""Exactly-once effects over at-least-once delivery: a fact's id is recorded in the transaction of its effect."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.envelope import Envelope, Fact, FactT
from libs.common.contracts.requests import Caller, Reply, ReplyT, Request, RequestMessage
from libs.common.database import Database
from libs.common.errors import Conflict
from libs.common.tables import DeadLetterRow, InboxRow, ReplyRow
from libs.common.unit_of_work import StoreT, UnitOfWork, UnitsOfWork

RequestT = TypeVar("RequestT", bound=Request[Any])

DEAD_LETTER_ID = 64
"""Characters of a dead letter's id at most."""

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
    row = {"queue": queue, "event_id": event_id, "handled_at": uow.now()}
    insert = _insert(session)(InboxRow).values(row)
    result = await session.execute(insert.on_conflict_do_nothing().returning(InboxRow.event_id))
    return result.scalar_one_or_none() is not None


def _dead_letter_id(queue: str, event_id: str) -> str:
    """The same for every burial of a fact in a queue, within 64 characters."""
    plain = f"{queue}:{event_id}"
    return plain if len(plain) <= DEAD_LETTER_ID else hashlib.sha256(plain.encode()).hexdigest()


async def bury(units: UnitsOfWork[Any], queue: str, envelope: Envelope, deliveries: int, error: str) -> None:
    """Keep a fact that cannot be handled, for an operator to read and replay."""
    async with units.begin() as uow:
        await uow.session.merge(
            DeadLetterRow(
                id=_dead_letter_id(queue, envelope.id),
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

    The key is reserved before the command is carried out, so that of two at the same moment one waits for the other.

    Raises:
        Conflict: the key was used for another request.
    """
    key = message.idempotency_key if type(request).COMMAND else None
    async with units.begin() as uow:
        if key is None:
            return await answer(request, message.caller, uow)
        first = await _reserve(message, request, key, uow)
        if first is None:
            reply = await answer(request, message.caller, uow)
            await uow.session.execute(
                update(ReplyRow)
                .where(ReplyRow.scope == _scope(message), ReplyRow.idempotency_key == key)
                .values(reply=reply.model_dump_json())
            )
            return reply
        if first.request_digest != _digest(request):
            raise Conflict(f"Idempotency-Key {key!r} was used for another request; send a new key")
        return type(request).REPLY.model_validate_json(first.reply)


async def _reserve(
    message: RequestMessage, request: Request[Any], key: str, uow: UnitOfWork[Any]
) -> ReplyRow | None:
    """None when the key is this transaction's to answer; else the first reply, waited for if it is being made."""
    insert = _insert(uow.session)(ReplyRow).values(
        scope=_scope(message),
        idempotency_key=key,
        request_digest=_digest(request),
        reply="",
        created_at=uow.now(),
    )
    result = await uow.session.execute(insert.on_conflict_do_nothing().returning(ReplyRow.scope))
    if result.scalar_one_or_none() is not None:
        return None
    return await uow.session.get_one(ReplyRow, (_scope(message), key))


def _scope(message: RequestMessage) -> str:
    return f"{message.name}:{message.caller.workspace_id or message.caller.kind}"


def _digest(request: Request[Any]) -> str:
    return hashlib.sha256(request.model_dump_json().encode()).hexdigest()


def _insert(session: AsyncSession) -> Callable[[type[Any]], Any]:
    return postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
