"""The one way to change state: a transaction, the facts that it emits, and time, as one.

Guaranteed: the facts of a unit of work are in the outbox exactly when its changes are committed. Nothing else commits
and nothing else publishes.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope, Fact
from libs.common.database import Database
from libs.common.identifiers import RandomBits, new_id
from libs.common.tables import OutboxRow
from libs.common.telemetry.traces import current_traceparent

StoreT = TypeVar("StoreT")
StoreFactory = Callable[[AsyncSession], StoreT]


class UnitOfWork(Generic[StoreT]):
    """What a handler works with: its store, the session's transaction, the clock, new ids, and `emit`."""

    def __init__(
        self,
        session: AsyncSession,
        store: StoreT,
        *,
        source: str,
        clock: Clock,
        randbits: RandomBits = secrets.randbits,
    ) -> None:
        self.session = session
        self.store = store
        self._source = source
        self._clock = clock
        self._randbits = randbits
        self.emitted: list[Envelope] = []
        self.cause: Envelope | None = None
        """The envelope of the fact being handled; None while a request is answered."""
        self.committed: list[Callable[[], None]] = []

    def after_commit(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the changes are committed, and only then; it must not raise."""
        self.committed.append(tell)

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        return self._clock.now()

    def new_id(self, prefix: str) -> str:
        """A fresh identifier, `prefix_…`, sorting by time."""
        return new_id(prefix, self.now(), self._randbits)

    def emit(self, fact: Fact) -> None:
        """State a fact: it is published once this unit of work is committed, and only then.

        Raises:
            TooLarge: no bus would take it.
        """
        envelope = Envelope.wrap(
            fact,
            id=self.new_id("evt"),
            source=self._source,
            time=self.now(),
            traceparent=current_traceparent(),
        )
        text = encode(envelope).decode()
        self.emitted.append(envelope)
        self.session.add(OutboxRow(event_id=envelope.id, envelope=text, created_at=envelope.time))


class UnitsOfWork(Generic[StoreT]):
    """Makes the units of work of one service and tells the outbox's relay of each commit."""

    def __init__(
        self,
        database: Database,
        store: StoreFactory[StoreT],
        *,
        source: str,
        clock: Clock,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._store = store
        self._source = source
        self._clock = clock
        self._committed = committed

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[UnitOfWork[StoreT]]:
        """A unit of work that commits when the block ends well and is undone when it raises."""
        async with self._database.begin() as session:
            uow = UnitOfWork(session, self._store(session), source=self._source, clock=self._clock)
            yield uow
        if uow.emitted:
            self._committed()
        for tell in uow.committed:
            tell()

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[StoreT]:
        """The store for questions alone."""
        async with self._database.read() as session:
            yield self._store(session)
