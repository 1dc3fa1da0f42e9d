"""The relay: publishes what units of work committed, in the order of commit, until the bus has it safe.

Guaranteed: every committed fact is published at least once, also across a crash; facts of a subject are published in
their order, and one that the broker did not take holds back the later ones of its subject until it is taken; one relay
a service is at work at a time (on PostgreSQL by an advisory lock, on SQLite by being the one process). A database or a
bus that is away for a while holds facts back and loses none.

A fact that no bus can carry is set aside as a dead letter at once; one whose handling took the process down in
`HAND_OVER_LIMIT` lives of it as well (over the in-process bus alone: a broker outlives its consumers).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

import structlog
from sqlalchemy import delete, select, update

from libs.common.bus import Bus
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.database import Database, is_transient
from libs.common.errors import OsmosisError
from libs.common.leadership import Leadership, leadership
from libs.common.tables import DeadLetterRow, InboxRow, OutboxRow, ReplyRow

BATCH = 500
MOST_IN_FLIGHT = 20_000
POLL_S = 0.2
RETRY_S = 0.5
LONGEST_RETRY_S = 5.0
HAND_OVER_LIMIT = 10
KEEP_PUBLISHED = timedelta(hours=1)
KEEP_HANDLED = timedelta(days=14)
CLEAN_EVERY = timedelta(seconds=600)
OUTBOX = "outbox"
"""Where a dead letter lies that was never published."""

_log = structlog.get_logger(__name__)
_UNPUBLISHED = OutboxRow.published_at.is_(None)


class Relay:
    """Publishes the outbox of one service.

    `one_by_one`: a fact waits until the one before of its subject is safe. A broker may refuse one fact and take the
    next; the in-process bus refuses none, and there a fact is safe only when it is handled.
    """

    def __init__(self, database: Database, bus: Bus, clock: Clock, *, one_by_one: bool) -> None:
        self._database = database
        self._bus = bus
        self._clock = clock
        self._one_by_one = one_by_one
        self._wake = asyncio.Event()
        self._in_flight: set[int] = set()
        self._safe: set[int] = set()
        self._refused: dict[int, str] = {}
        self._lanes: dict[str, deque[tuple[int, Envelope]]] = {}

    def notify(self) -> None:
        """A unit of work was committed."""
        self._wake.set()

    async def run(self) -> None:
        """Relay until cancelled."""
        begun = False
        try:
            while True:
                try:
                    # Lanes end with the leadership: whoever leads next publishes what is not safe by then.
                    async with leadership(self._database, "relay") as lead, asyncio.TaskGroup() as lanes:
                        if not begun:
                            await self._begin_life()
                            begun = True
                        await self._relay(lead, lanes)
                except Exception as error:
                    if not is_transient(error):
                        raise
                    _log.warning("the outbox cannot be relayed; trying again", error=repr(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            if begun:
                await self._end_life()

    async def _relay(self, lead: Leadership, lanes: asyncio.TaskGroup) -> None:
        cleaned = self._clock.now() - CLEAN_EVERY
        while True:
            await lead.check()
            await self._forget_safe()
            await self._bury_refused()
            handed = await self._hand_over(lanes)
            if self._clock.now() - cleaned >= CLEAN_EVERY:
                cleaned = self._clock.now()
                await self._clean()
            if handed < BATCH:
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._wake.wait()
                self._wake.clear()

    async def _hand_over(self, lanes: asyncio.TaskGroup) -> int:
        """Put the next rows of the outbox into the lanes of their subjects; how many."""
        rows = await self._next_rows()
        for row in rows:
            envelope = Envelope.model_validate_json(row.envelope)
            self._in_flight.add(row.seq)
            lane = self._lanes.get(envelope.subject)
            if lane is not None:
                lane.append((row.seq, envelope))
                continue
            self._lanes[envelope.subject] = deque([(row.seq, envelope)])
            lanes.create_task(self._drive(envelope.subject), name=f"publish:{envelope.subject}")
        return len(rows)

    async def _next_rows(self) -> Sequence[OutboxRow]:
        """Rows that are not in flight yet, oldest first. What lies between those in flight was committed late."""
        room = min(BATCH, MOST_IN_FLIGHT - len(self._in_flight))
        if room <= 0:
            return []
        numbers = select(OutboxRow.seq).where(_UNPUBLISHED).order_by(OutboxRow.seq)
        async with self._database.read() as session:
            found = (await session.scalars(numbers.limit(len(self._in_flight) + room))).all()
            fresh = [seq for seq in found if seq not in self._in_flight][:room]
            if not fresh:
                return []
            rows = select(OutboxRow).where(OutboxRow.seq.in_(fresh)).order_by(OutboxRow.seq)
            return (await session.scalars(rows)).all()

    async def _drive(self, subject: str) -> None:
        """Publish the facts of one subject in their order, each until the bus has it."""
        lane = self._lanes[subject]
        try:
            while lane:
                await self._publish(*lane[0])
                lane.popleft()
        finally:
            self._in_flight -= {seq for seq, _ in lane}
            del self._lanes[subject]

    async def _publish(self, seq: int, envelope: Envelope) -> None:
        pauses_s = _growing_pauses()
        while True:
            try:
                confirmed = await self._bus.publish(envelope)
            except OsmosisError as error:
                self._refused[seq] = error.message
                self._wake.set()
                return
            except (OSError, RuntimeError) as error:
                _log.warning("the bus takes no facts; trying again", error=str(error))
            else:
                if not self._one_by_one:
                    confirmed.add_done_callback(lambda future: self._settled(seq, future))
                    return
                await asyncio.wait({confirmed})
                if self._is_safe(seq, confirmed):
                    return
            await asyncio.sleep(next(pauses_s))

    def _settled(self, seq: int, confirmed: asyncio.Future[None]) -> None:
        if not self._is_safe(seq, confirmed):
            self._in_flight.discard(seq)

    def _is_safe(self, seq: int, confirmed: asyncio.Future[None]) -> bool:
        """Whether the bus has the fact; one that it has not is published again."""
        self._wake.set()
        if confirmed.cancelled():
            return False
        if (error := confirmed.exception()) is not None:
            _log.warning("a fact was not confirmed; publishing it again", error=str(error))
            return False
        self._safe.add(seq)
        return True

    async def _forget_safe(self) -> None:
        done = frozenset(self._safe)
        for some in _batched(sorted(done)):
            async with self._database.begin() as session:
                await session.execute(
                    update(OutboxRow).where(OutboxRow.seq.in_(some)).values(published_at=self._clock.now())
                )
        self._safe -= done
        self._in_flight -= done

    async def _bury_refused(self) -> None:
        for seq, reason in list(self._refused.items()):
            async with self._database.begin() as session:
                row = await session.get_one(OutboxRow, seq)
                session.add(self._set_aside(row, f"it cannot be published: {reason}"))
            del self._refused[seq]
            self._in_flight.discard(seq)

    async def _begin_life(self) -> None:
        """Count this life of the process on every fact left over, and set aside those that outlived too many."""
        if self._one_by_one:
            return
        async with self._database.begin() as session:
            counted = update(OutboxRow).where(_UNPUBLISHED).values(hand_overs=OutboxRow.hand_overs + 1)
            await session.execute(counted)
            poison = select(OutboxRow).where(_UNPUBLISHED, OutboxRow.hand_overs > HAND_OVER_LIMIT)
            for row in (await session.scalars(poison)).all():
                reason = "never settled in any of its deliveries: handling it seems to end the process"
                session.add(self._set_aside(row, reason))

    async def _end_life(self) -> None:
        """A life that ends in good order is held against no fact."""
        if self._one_by_one:
            return
        try:
            async with self._database.begin() as session:
                survived = update(OutboxRow).where(_UNPUBLISHED, OutboxRow.hand_overs > 0)
                await session.execute(survived.values(hand_overs=OutboxRow.hand_overs - 1))
        except Exception as error:
            if not is_transient(error):
                raise
            _log.warning("the end of this life was not noted", error=repr(error))

    def _set_aside(self, row: OutboxRow, reason: str) -> DeadLetterRow:
        row.published_at = self._clock.now()
        envelope = Envelope.model_validate_json(row.envelope)
        _log.error("a fact is set aside", type=envelope.type, subject=envelope.subject, reason=reason)
        return DeadLetterRow(
            id=envelope.id,
            queue=OUTBOX,
            type=envelope.type,
            subject=envelope.subject,
            attempts=row.hand_overs,
            error=reason,
            envelope=row.envelope,
            died_at=self._clock.now(),
        )

    async def _clean(self) -> None:
        now = self._clock.now()
        async with self._database.begin() as session:
            await session.execute(delete(OutboxRow).where(OutboxRow.published_at < now - KEEP_PUBLISHED))
            await session.execute(delete(InboxRow).where(InboxRow.handled_at < now - KEEP_HANDLED))
            await session.execute(delete(ReplyRow).where(ReplyRow.created_at < now - KEEP_HANDLED))


def _batched(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Pieces that fit into one statement's parameters."""
    return (numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH))


def _growing_pauses() -> Iterator[float]:
    pause_s = RETRY_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_RETRY_S)
