"""The bus inside one process: no broker, the same promises.

A fact is confirmed only when every queue bound to its routing key has settled it (handled, or kept as a dead letter).
Until then its row stays in the outbox of the service that stated it, and a crash brings it back at the next start:
outbox and inbox together give what a broker's disk gives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from libs.common.bus import DeadLetterSink, FactHandler, QueueSpec, RequestHandler
from libs.common.bus.answering import answer
from libs.common.bus.courses import Course
from libs.common.bus.lines import Lines
from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.errors import Unavailable


@dataclass(eq=False)
class _Delivery:
    """One fact in one queue."""

    envelope: Envelope
    settled: asyncio.Future[None]


@dataclass(eq=False)
class _Queue:
    """A queue, what waits for its first consumer, and its consumer once there is one."""

    spec: QueueSpec
    lines: Lines
    waiting: deque[_Delivery] = field(default_factory=deque[_Delivery])
    consumer: tuple[FactHandler, DeadLetterSink] | None = None


class LocalBus:
    """Facts to queues and requests to addresses, in one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._addresses: dict[str, tuple[RequestHandler, asyncio.Semaphore]] = {}
        self._unsettled: set[asyncio.Future[None]] = set()
        self._requests: set[asyncio.Task[bytes | None]] = set()
        self._open = False

    async def start(self) -> None:
        """Facts are taken from now on."""
        self._open = True

    def healthy(self) -> bool:
        """Whether the bus is open."""
        return self._open

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        """Put a fact into every bound queue at once; the future is done when all have settled it.

        Raises:
            TooLarge: the fact is over the limit of a message.
            RuntimeError: the bus is closed.
        """
        if not self._open:
            raise RuntimeError("the bus is closed")
        body = encode(envelope)
        bound = [queue for queue in self._queues.values() if envelope.routing_key in queue.spec.bindings]
        return _all_of([self._put(queue, Envelope.model_validate_json(body)) for queue in bound])

    def _put(self, queue: _Queue, envelope: Envelope) -> asyncio.Future[None]:
        delivery = _Delivery(envelope, asyncio.get_running_loop().create_future())
        self._unsettled.add(delivery.settled)
        delivery.settled.add_done_callback(self._unsettled.discard)
        if queue.consumer is None:
            queue.waiting.append(delivery)
        else:
            self._deliver(queue, delivery, *queue.consumer)
        return delivery.settled

    async def declare(self, queue: QueueSpec) -> None:
        """Make the queue exist: what is published from now on waits in it."""
        self._queues.setdefault(queue.name, _Queue(queue, Lines(queue.prefetch, queue.name)))

    async def consume(self, queue: QueueSpec, handler: FactHandler, dead_letter: DeadLetterSink) -> None:
        """Start to handle a queue's facts."""
        await self.declare(queue)
        entry = self._queues[queue.name]
        entry.consumer = (handler, dead_letter)
        while entry.waiting:
            self._deliver(entry, entry.waiting.popleft(), handler, dead_letter)

    def _deliver(
        self, queue: _Queue, delivery: _Delivery, handler: FactHandler, sink: DeadLetterSink
    ) -> None:
        envelope = delivery.envelope
        course = Course(envelope, queue.spec.retry, handler, sink)

        async def go_on() -> float | None:
            again_s = await course.go_on()
            if again_s is None and not delivery.settled.done():
                delivery.settled.set_result(None)
            return again_s

        # Unordered facts have a line each; two copies of one fact share it, as they would on a broker.
        line = f"{envelope.source} {envelope.subject}" if queue.spec.ordered else envelope.id
        queue.lines.add(line, go_on)

    async def serve(self, address: str, handler: RequestHandler, *, concurrency: int = 64) -> None:
        """Answer the requests sent to an address."""
        self._addresses[address] = (handler, asyncio.Semaphore(concurrency))

    async def call(self, address: str, message: RequestMessage) -> ReplyMessage:
        """Ask and wait until the deadline; nobody at the address is said at once."""
        if address not in self._addresses:
            raise Unavailable(f"nobody answers at {address}; is the service running?")
        handler, places = self._addresses[address]
        body = encode(message)

        async def answered() -> bytes | None:
            async with places:
                return await answer(handler, body, self._clock)

        task = asyncio.create_task(answered(), name=f"request:{message.name}")
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        seconds = (message.deadline - self._clock.now()).total_seconds()
        # `wait` and not `await`: the work goes on when the one who asks gives up, as it does on a broker.
        await asyncio.wait({task}, timeout=max(0.0, seconds))
        if task.cancelled():
            raise Unavailable(f"{message.name} was not answered: the platform stops; try again")
        reply = task.result() if task.done() else None
        if reply is None:
            raise Unavailable(f"{message.name} was not answered within {seconds:.1f} s; try again")
        return ReplyMessage.model_validate_json(reply)

    async def stop_consuming(self) -> None:
        """Take nothing new; cancel what is under way, so that its facts come back at the next start."""
        self._open = False
        self._addresses.clear()
        requests: list[asyncio.Task[Any]] = list(self._requests)
        for request in requests:
            request.cancel()
        await asyncio.gather(*(queue.lines.stop(0) for queue in self._queues.values()))
        await asyncio.gather(*requests, return_exceptions=True)
        unsettled = list(self._unsettled)
        for settled in unsettled:
            settled.cancel()
        await asyncio.gather(*unsettled, return_exceptions=True)

    async def aclose(self) -> None:
        """Stop."""
        await self.stop_consuming()


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
