"""The relay: publishes what units of work committed, in the order of commit, until the bus has it safe.

Guaranteed: every committed fact is published at least once, also across a crash; one relay a service is at work at a
time (on PostgreSQL by an advisory lock, on SQLite by being the one process), so facts of a subject keep their order.
A fact that was handed over in `HAND_OVER_LIMIT` lives of the process without becoming safe is set aside as a dead
letter: it would take the process down for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import structlog
from sqlalchemy import delete, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.bus import Bus
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.database import Database
from libs.common.tables import DeadLetterRow, InboxRow, OutboxRow, ReplyRow

BATCH = 500
POLL_S = 0.2
RETRY_S = 0.5
STANDBY_S = 1.0
HAND_OVER_LIMIT = 10
KEEP_PUBLISHED = timedelta(hours=24)
KEEP_HANDLED = timedelta(days=14)
CLEAN_EVERY_S = 600.0

_log = structlog.get_logger(__name__)


class Relay:
    """Publishes the outbox of one service."""

    def __init__(self, database: Database, bus: Bus, clock: Clock) -> None:
        self._database = database
        self._bus = bus
        self._clock = clock
        self._wake = asyncio.Event()
        self._in_flight: set[int] = set()
        self._safe: set[int] = set()
        self._failures = 0

    def notify(self) -> None:
        """A unit of work was committed."""
        self._wake.set()

    async def run(self) -> None:
        """Relay until cancelled."""
        async with self._leadership():
            await self._take_over()
            cleaned = self._clock.now() - timedelta(seconds=CLEAN_EVERY_S)
            while True:
                handed = await self._hand_over()
                await self._forget_safe()
                if self._clock.now() - cleaned >= timedelta(seconds=CLEAN_EVERY_S):
                    cleaned = self._clock.now()
                    await self._clean()
                if handed < BATCH:
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(POLL_S):
                            await self._wake.wait()
                    self._wake.clear()

    async def _hand_over(self) -> int:
        query = select(OutboxRow).where(OutboxRow.published_at.is_(None)).order_by(OutboxRow.seq)
        if self._in_flight:
            # In flight are at most a few thousand rows; what lies between them may have been committed late.
            query = query.where(OutboxRow.seq.notin_(sorted(self._in_flight)))
        failures = self._failures
        async with self._database.read() as session:
            rows = (await session.scalars(query.limit(BATCH))).all()
        for row in rows:
            if self._failures != failures:
                # A fact that was handed over before these has failed since they were read: it must come first.
                return 0
            try:
                confirmed = await self._bus.publish(Envelope.model_validate_json(row.envelope))
            except (OSError, RuntimeError) as error:
                _log.warning("the bus takes no facts; trying again", error=str(error))
                await asyncio.sleep(RETRY_S)
                return 0
            self._in_flight.add(row.seq)
            confirmed.add_done_callback(lambda future, seq=row.seq: self._settled(seq, future))
        return len(rows)

    def _settled(self, seq: int, confirmed: asyncio.Future[None]) -> None:
        if confirmed.cancelled():
            self._failures += 1
            self._in_flight.discard(seq)
        elif (error := confirmed.exception()) is not None:
            _log.warning("a fact was not confirmed; publishing it again", seq=seq, error=str(error))
            self._failures += 1
            self._in_flight.discard(seq)
        else:
            self._safe.add(seq)
        self._wake.set()

    async def _forget_safe(self) -> None:
        if not self._safe:
            return
        done, self._safe = self._safe, set()
        async with self._database.begin() as session:
            await session.execute(
                update(OutboxRow).where(OutboxRow.seq.in_(done)).values(published_at=self._clock.now())
            )
        self._in_flight -= done

    async def _take_over(self) -> None:
        """Count this life of the process on every fact left over, and set aside those that outlived too many."""
        left = OutboxRow.published_at.is_(None)
        async with self._database.begin() as session:
            await session.execute(update(OutboxRow).where(left).values(hand_overs=OutboxRow.hand_overs + 1))
            poison = await session.scalars(
                select(OutboxRow).where(left, OutboxRow.hand_overs > HAND_OVER_LIMIT)
            )
            for row in poison.all():
                row.published_at = self._clock.now()
                envelope = Envelope.model_validate_json(row.envelope)
                session.add(
                    DeadLetterRow(
                        id=envelope.id,
                        queue="outbox",
                        type=envelope.type,
                        subject=envelope.subject,
                        attempts=row.hand_overs,
                        error="never settled in any of its deliveries: handling it seems to end the process",
                        envelope=row.envelope,
                        died_at=self._clock.now(),
                    )
                )

    async def _clean(self) -> None:
        now = self._clock.now()
        async with self._database.begin() as session:
            await session.execute(delete(OutboxRow).where(OutboxRow.published_at < now - KEEP_PUBLISHED))
            await session.execute(delete(InboxRow).where(InboxRow.handled_at < now - KEEP_HANDLED))
            await session.execute(delete(ReplyRow).where(ReplyRow.created_at < now - KEEP_HANDLED))

    @asynccontextmanager
    async def _leadership(self) -> AsyncGenerator[None]:
        if self._database.is_sqlite:
            yield
            return
        async with self._database.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            session = AsyncSession(connection)
            lock = text("SELECT pg_try_advisory_lock(hashtext(:name))")
            # Another process releases an advisory lock by ending: nothing in this one can be waited for.
            while not await session.scalar(lock, {"name": f"osmosis-relay-{self._database.service}"}):  # noqa: ASYNC110
                await asyncio.sleep(STANDBY_S)
            yield
