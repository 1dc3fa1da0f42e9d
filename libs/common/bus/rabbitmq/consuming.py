"""Facts from a queue to their handler, over as many links as it takes.

Guaranteed: a fact is acknowledged when it is handled, kept by the sink, or confirmed in a delay queue, and never
before; what a lost link had delivered is delivered again and waits in line behind the handler that may still be at
work on it. A fact that ends its consumer again and again ends up in the dead queue alone: once facts come back for the
second time they are taken one by one, so that the next end is counted against the guilty one.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass

import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pydantic import ValidationError

from libs.common.bus import DeadLetterSink, FactHandler, QueueSpec
from libs.common.bus.courses import Course
from libs.common.bus.lines import Lines
from libs.common.bus.rabbitmq.link import LINK_ERRORS, Link
from libs.common.bus.rabbitmq.topology import DELIVERY_LIMIT, Names
from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.identifiers import WorkspaceId

_log = structlog.get_logger(__name__)
ORDERED_WINDOW = 1000
"""Facts of an ordered queue held here at most: beyond this many behind a failing one, others wait too."""
SUSPICIOUS_RETURNS = 2
"""A fact that came back so often is taken alone. The first return is any restart's."""
UNREADABLE_KEPT_BYTES = 64 * 1024
_DELIVERY = "x-osmosis-delivery"
_RETURNS = "x-delivery-count"


@dataclass(eq=False)
class _Session:
    """A channel that consumes the queue. `narrow`: one fact at a time; `over`: nothing can be settled on it."""

    link: Link
    channel: AbstractChannel
    narrow: bool
    closed: bool = False

    @property
    def over(self) -> bool:
        return self.closed or self.link.lost.is_set()


@dataclass(frozen=True)
class _Taken:
    """A message and the session that brought it: it can be settled in no other."""

    session: _Session
    message: AbstractIncomingMessage

    async def acknowledge(self) -> None:
        """Settle it, if its session still stands; else it comes again."""
        tag = self.message.delivery_tag
        if self.session.over or tag is None:
            return
        try:
            await self.message.channel.basic_ack(tag, wait=False)
        except LINK_ERRORS as error:
            self.session.link.abandon(f"an acknowledgement could not be sent: {error!r}")

    def header(self, name: str) -> int:
        """A number among the headers, 0 when there is none of that name."""
        value = self.message.headers.get(name)
        return value if isinstance(value, int) else 0


class QueueConsumer:
    """Consumes one queue and its dead queue."""

    def __init__(
        self, spec: QueueSpec, names: Names, handler: FactHandler, sink: DeadLetterSink, clock: Clock
    ) -> None:
        self._spec = spec
        self._names = names
        self._handler = handler
        self._sink = sink
        self._clock = clock
        self._lines = Lines(spec.prefetch, spec.name)
        self._graves = Lines(1, f"{spec.name}.dead")
        self._session: _Session | None = None
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._stopped = False

    async def attach(self, link: Link) -> None:
        """Consume over this link; a link that has it already is left as it is.

        Raises:
            LINK_ERRORS: the link broke.
        """
        async with self._opening:
            if self._stopped or (self._session is not None and self._session.link is link):
                return
            await self._open(link, narrow=False)

    async def stop(self, grace_s: float) -> None:
        """Take no more; handlers at work have `grace_s` seconds. What is not settled goes back to the queue.

        A handler may be ended: it is one transaction, or safe to run again.
        """
        self._stopped = True
        await asyncio.gather(self._lines.stop(grace_s), self._graves.stop(grace_s))
        if self._reopening is not None:
            await self._reopening
        async with self._opening:
            if self._session is not None and not self._session.over:
                await self._close(self._session)

    async def _open(self, link: Link, *, narrow: bool) -> None:
        channel = await link.channel()
        self._session = session = _Session(link, channel, narrow)

        async def take(message: AbstractIncomingMessage) -> None:
            self._take(_Taken(session, message))

        async def take_dead(message: AbstractIncomingMessage) -> None:
            self._take_dead(_Taken(session, message))

        # What waited for another try was delivered in an older session: it is void, and comes again in this one.
        self._lines.wake()
        self._graves.wake()
        await channel.set_qos(1)
        dead = await channel.get_queue(self._names.dead(self._spec.name), ensure=False)
        await dead.consume(take_dead)
        wide = ORDERED_WINDOW if self._spec.ordered else self._spec.prefetch
        await channel.set_qos(1 if narrow else wide)
        queue = await channel.get_queue(self._names.queue(self._spec.name), ensure=False)
        await queue.consume(take)

    async def _close(self, session: _Session) -> None:
        session.closed = True
        with suppress(*LINK_ERRORS):
            await session.link.retire(session.channel)

    def _take(self, taken: _Taken) -> None:
        if taken.session.over or self._stopped:
            return
        returns = taken.header(_RETURNS)
        if returns >= SUSPICIOUS_RETURNS and not taken.session.narrow:
            self._reopen(taken.session, narrow=True)
            return
        if returns == 0 and taken.session.narrow:
            self._reopen(taken.session, narrow=False)
            return
        course = self._course(taken)
        # Unordered facts have a line each, by id: a fact that comes again waits for the handler still at work on it.
        envelope = course.envelope
        line = f"{envelope.source} {envelope.subject}" if self._spec.ordered else envelope.id
        self._lines.add(line, lambda: self._go_on(course, taken))

    def _take_dead(self, taken: _Taken) -> None:
        course = self._course(taken)
        course.delivery = DELIVERY_LIMIT + 1
        if course.last_error is None:
            course.last_error = "it came back unsettled every time: handling it seems to end the process"
        self._graves.add(course.envelope.id, lambda: self._go_on(course, taken))

    def _course(self, taken: _Taken) -> Course:
        retry, handler, sink = self._spec.retry, self._handler, self._sink
        try:
            envelope = Envelope.model_validate_json(taken.message.body)
        except ValidationError as error:
            envelope = self._unreadable(taken.message)
            return Course(envelope, retry, handler, sink, last_error=f"it is not an event: {error}")
        return Course(envelope, retry, handler, sink, delivery=max(1, taken.header(_DELIVERY)))

    async def _go_on(self, course: Course, taken: _Taken) -> float | None:
        if taken.session.over:
            return None
        again_s = await course.go_on()
        if again_s is None:
            await taken.acknowledge()
        elif not self._spec.ordered and course.last_error is None:
            await self._delay(course, taken, again_s)
            return None
        return again_s

    async def _delay(self, course: Course, taken: _Taken, delay_s: float) -> None:
        """Let the fact wait on the broker, where it takes nobody's place."""
        link, envelope = taken.session.link, course.envelope
        try:
            await link.publish(
                envelope,
                encode(envelope),
                exchange="",
                routing_key=self._names.retry(self._spec.name, delay_s),
                headers={_DELIVERY: course.delivery},
            )
        except ConnectionError as error:
            link.abandon(f"a fact could not be put off: {error}")
            return
        await taken.acknowledge()

    def _reopen(self, session: _Session, *, narrow: bool) -> None:
        session.closed = True
        _log.warning(
            "facts are taken one by one" if narrow else "facts are taken as ever", queue=self._spec.name
        )
        # A task of its own: closing a channel ends the tasks that its deliveries came in, this one among them.
        self._reopening = asyncio.create_task(self._swap(session, narrow), name=f"{self._spec.name}:reopen")

    async def _swap(self, session: _Session, narrow: bool) -> None:
        async with self._opening:
            try:
                await session.link.retire(session.channel)
                if not self._stopped and self._session is session:
                    await self._open(session.link, narrow=narrow)
            except LINK_ERRORS as error:
                session.link.abandon(f"a consumer could not be opened again: {error!r}")

    def _unreadable(self, message: AbstractIncomingMessage) -> Envelope:
        """What came instead of an event, as one, so that an operator sees it among the dead letters."""
        return Envelope(
            id=message.message_id or hashlib.sha256(message.body).hexdigest()[:32],
            source="/osmosis/unknown",
            type="osmosis.unreadable.v1",
            subject=self._spec.name,
            time=self._clock.now(),
            workspaceid=WorkspaceId(""),
            data={"text": message.body[:UNREADABLE_KEPT_BYTES].decode(errors="replace")},
        )
