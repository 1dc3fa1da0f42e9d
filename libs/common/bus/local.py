"""The bus inside one process: no broker, the same promises.

A fact is confirmed only when every queue bound to its routing key has settled it (handled, or kept as a dead letter).
Until then its row stays in the outbox of the service that stated it, and a crash brings it back at the next start:
outbox and inbox together give what a broker's disk gives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from libs.common.bus import DeadLetterSink, FactHandler, QueueSpec, RequestHandler
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.errors import Unavailable

_log = structlog.get_logger(__name__)
SINK_RETRY_S = 1.0


@dataclass
class _Delivery:
    """One fact in one queue."""

    envelope: Envelope
    settled: asyncio.Future[None]


@dataclass
class _Queue:
    """A queue and who consumes it. An ordered queue has a line a subject; others have one line for all."""

    spec: QueueSpec
    waiting: deque[_Delivery] = field(default_factory=deque[_Delivery])
    busy: dict[str, deque[_Delivery]] = field(default_factory=dict[str, deque[_Delivery]])
    running: int = 0
    handler: FactHandler | None = None
    sink: DeadLetterSink | None = None


class LocalBus:
    """Facts to queues and requests to addresses, in one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._addresses: dict[str, tuple[RequestHandler, asyncio.Semaphore]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: set[asyncio.Task[ReplyMessage]] = set()
        self._open = False

    async def start(self) -> None:
        """Facts are taken from now on."""
        self._open = True

    def healthy(self) -> bool:
        """Whether the bus is open."""
        return self._open

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        """Put a fact into every bound queue at once; the future is done when all have settled it."""
        if not self._open:
            raise RuntimeError("the bus is closed")
        text = envelope.model_dump_json()
        bound = [queue for queue in self._queues.values() if envelope.routing_key in queue.spec.bindings]
        settled = [self._enqueue(queue, Envelope.model_validate_json(text)) for queue in bound]
        return _all_of(settled)

    def _enqueue(self, queue: _Queue, envelope: Envelope) -> asyncio.Future[None]:
        delivery = _Delivery(envelope, asyncio.get_running_loop().create_future())
        queue.waiting.append(delivery)
        self._dispatch(queue)
        return delivery.settled

    async def declare(self, queue: QueueSpec) -> None:
        """Make the queue exist: what is published from now on waits in it."""
        self._queues.setdefault(queue.name, _Queue(queue))

    async def consume(self, queue: QueueSpec, handler: FactHandler, dead_letter: DeadLetterSink) -> None:
        """Start to handle a queue's facts."""
        await self.declare(queue)
        entry = self._queues[queue.name]
        entry.handler, entry.sink = handler, dead_letter
        self._dispatch(entry)

    def _dispatch(self, queue: _Queue) -> None:
        """Start what may start: on an ordered queue a subject at work keeps its later facts in a line behind it."""
        while queue.waiting and queue.handler is not None and queue.running < queue.spec.prefetch:
            delivery = queue.waiting.popleft()
            subject = f"{delivery.envelope.source} {delivery.envelope.subject}"
            if queue.spec.ordered and subject in queue.busy:
                queue.busy[subject].append(delivery)
                continue
            if queue.spec.ordered:
                queue.busy[subject] = deque()
            queue.running += 1
            self._own(self._work_off(queue, subject, delivery), f"{queue.spec.name}:{subject}")

    async def _work_off(self, queue: _Queue, subject: str, delivery: _Delivery) -> None:
        """Settle a delivery and, on an ordered queue, those that came for its subject meanwhile."""
        try:
            line = queue.busy.get(subject) if queue.spec.ordered else None
            await self._settle(queue, delivery)
            while line:
                await self._settle(queue, line.popleft())
        finally:
            queue.running -= 1
            for left in queue.busy.pop(subject, ()) if queue.spec.ordered else ():
                left.settled.cancel()
            self._dispatch(queue)

    async def _settle(self, queue: _Queue, delivery: _Delivery) -> None:
        assert queue.handler is not None and queue.sink is not None
        try:
            for attempt in range(1, queue.spec.retry.deliveries + 1):
                error = await _attempt(queue.handler, delivery.envelope, attempt)
                if error is None:
                    break
                if attempt == queue.spec.retry.deliveries:
                    await self._bury(queue.sink, delivery.envelope, attempt, error)
                else:
                    await asyncio.sleep(queue.spec.retry.delays_s[attempt - 1])
            if not delivery.settled.done():
                delivery.settled.set_result(None)
        finally:
            delivery.settled.cancel()

    async def _bury(self, sink: DeadLetterSink, envelope: Envelope, deliveries: int, error: str) -> None:
        while True:
            try:
                await sink(envelope, deliveries, error)
                return
            except Exception as failure:  # noqa: BLE001 - a fact is not dropped because its grave is shut
                _log.error("a dead letter could not be kept; trying again", error=repr(failure))
                await asyncio.sleep(SINK_RETRY_S)

    async def serve(self, address: str, handler: RequestHandler, *, concurrency: int = 64) -> None:
        """Answer the requests sent to an address."""
        self._addresses[address] = (handler, asyncio.Semaphore(concurrency))

    async def call(self, address: str, message: RequestMessage) -> ReplyMessage:
        """Ask and wait until the deadline."""
        if address not in self._addresses:
            raise Unavailable(f"nobody answers at {address}; is the service running?")
        handler, places = self._addresses[address]
        sent = RequestMessage.model_validate_json(message.model_dump_json())

        async def answer() -> ReplyMessage:
            async with places:
                return await handler(sent)

        task = asyncio.create_task(answer(), name=f"request:{message.name}")
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        seconds = (message.deadline - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                reply = await asyncio.shield(task)
        except TimeoutError:
            raise Unavailable(f"{message.name} was not answered within {seconds:.1f} s; try again") from None
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            # The one who answers was stopped, not the one who asks.
            raise Unavailable(f"{message.name} was not answered: the platform stops; try again") from None
        return ReplyMessage.model_validate_json(reply.model_dump_json())

    async def stop_consuming(self) -> None:
        """Take nothing new; cancel what is under way, so that its facts come back at the next start."""
        self._open = False
        self._addresses.clear()
        for queue in self._queues.values():
            queue.handler = None
            for delivery in queue.waiting:
                delivery.settled.cancel()
            queue.waiting.clear()
        under_way: list[asyncio.Task[Any]] = [*self._tasks, *self._requests]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def aclose(self) -> None:
        """Stop."""
        await self.stop_consuming()

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _attempt(handler: FactHandler, envelope: Envelope, attempt: int) -> str | None:
    """One delivery; the error's text when it failed."""
    try:
        await handler(envelope, attempt)
    except Exception as error:  # noqa: BLE001 - a failing handler asks for another delivery; recorded here
        _log.warning(
            "a fact was not handled",
            type=envelope.type,
            subject=envelope.subject,
            attempt=attempt,
            exc_info=error,
        )
        return f"{type(error).__name__}: {error}"
    return None


def _all_of(settled: list[asyncio.Future[None]]) -> asyncio.Future[None]:
    """Done when all are, cancelled when one is."""
    whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(settled)

    def one_less(future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if whole.done():
            return
        if future.cancelled():
            whole.cancel()
        elif left == 0:
            whole.set_result(None)

    for future in settled:
        future.add_done_callback(one_less)
    if not settled:
        whole.set_result(None)
    return whole
