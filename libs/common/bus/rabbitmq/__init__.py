"""The bus over RabbitMQ: quorum queues, publisher confirms, one link at a time.

When the link is lost, what was not confirmed has failed before the next link takes anything: whoever publishes again
in order keeps the order. Everything declared is declared again on each link, so a broker that lost its data is set up
before the first fact is sent to it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from libs.common.bus import DeadLetterSink, FactHandler, QueueSpec, RequestHandler
from libs.common.bus.rabbitmq.asking import Answerer, Asker, NobodyThere
from libs.common.bus.rabbitmq.consuming import QueueConsumer
from libs.common.bus.rabbitmq.link import LINK_ERRORS, Link, link_errors
from libs.common.bus.rabbitmq.topology import Names, QueueDiffers, declare_exchange, declare_queue
from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.errors import Unavailable

__all__ = ["QueueDiffers", "RabbitBus"]

_log = structlog.get_logger(__name__)
START_TIMEOUT_S = 60
RECONNECT_FIRST_S = 0.1
RECONNECT_MOST_S = 10
ASK_AGAIN_S = 0.1
DRAIN_S = 10


class RabbitBus:
    """Facts to quorum queues, requests to addresses, over a broker that may come and go."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        prefix: str = "",
        patience_s: float = START_TIMEOUT_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        """`patience_s`: how long `start`, `declare`, `consume` and `serve` wait for a link. `drain_s`: how long a stop
        waits for handlers at work before it cancels them; their facts go back to the broker."""
        self._url = url
        self._drain_s = drain_s
        self._patience_s = patience_s
        self._clock = clock
        self._names = Names(prefix)
        self._declared: dict[str, QueueSpec] = {}
        self._consumers: dict[str, QueueConsumer] = {}
        self._answerers: dict[str, Answerer] = {}
        self._link: Link | None = None
        self._asker: Asker | None = None
        self._linked = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._failure = "not started"

    async def start(self) -> None:
        """Connect.

        Raises:
            ConnectionError: the broker did not answer, or refused us, for `patience_s` seconds.
        """
        self._keeper = asyncio.create_task(self._keep_linked(), name="rabbitmq:link")
        try:
            await self._current()
        except BaseException:
            await self.aclose()
            raise

    def healthy(self) -> bool:
        """Whether there is a link."""
        return self._link is not None and not self._link.lost.is_set()

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        """Send a fact; the future is done when the broker has it on disk in every bound queue.

        Raises:
            TooLarge: the fact is over the limit of a message.
            ConnectionError: there is no link at the moment.
        """
        body, link = encode(envelope), self._link
        if link is None or link.lost.is_set():
            raise ConnectionError(f"there is no link to RabbitMQ ({self._failure}); publish again")
        return link.publish(envelope, body, exchange=self._names.events, routing_key=envelope.routing_key)

    async def declare(self, queue: QueueSpec) -> None:
        """Make the queue exist with its bindings.

        Raises:
            QueueDiffers: it stands on the broker with other arguments.
            ConnectionError: there was no link for too long.
        """
        while True:
            link = await self._current()
            try:
                await self._declare(link, queue)
            except LINK_ERRORS as error:
                if isinstance(error, QueueDiffers) or not link.lost.is_set():
                    raise
            else:
                self._declared[queue.name] = queue
                return

    async def _declare(self, link: Link, queue: QueueSpec) -> None:
        # A channel of its own, since a refused declaration closes it.
        with link_errors():
            channel = await link.loose_channel()
            try:
                await declare_queue(channel, self._names, queue)
            finally:
                await link.retire(channel)

    async def consume(self, queue: QueueSpec, handler: FactHandler, dead_letter: DeadLetterSink) -> None:
        """Declare a queue and start to consume it."""
        await self.declare(queue)
        consumer = QueueConsumer(queue, self._names, handler, dead_letter, self._clock)
        self._consumers[queue.name] = consumer
        await self._attach(consumer)

    async def serve(self, address: str, handler: RequestHandler, *, concurrency: int = 64) -> None:
        """Answer the requests sent to an address."""
        answerer = Answerer(address, self._names, handler, concurrency, self._clock)
        self._answerers[address] = answerer
        await self._attach(answerer)

    async def _attach(self, consumer: QueueConsumer | Answerer) -> None:
        while True:
            link = await self._current()
            try:
                with link_errors():
                    await consumer.attach(link)
            except LINK_ERRORS:
                if not link.lost.is_set():
                    raise
            else:
                return

    async def call(self, address: str, message: RequestMessage) -> ReplyMessage:
        """Ask, and wait until the deadline: for a link, for somebody at the address, and for the answer."""
        seconds = (message.deadline - self._clock.now()).total_seconds()
        problem = f"{message.name} was not answered within {seconds:.1f} s; try again"
        queue, end = self._names.requests(address), asyncio.get_running_loop().time() + max(0.0, seconds)
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await self._linked.wait()
                    if (asker := self._asker) is None or not self._linked.is_set():
                        continue
                    try:
                        return await asker.ask(queue, message, end - asyncio.get_running_loop().time())
                    except NobodyThere:
                        problem = f"nobody answers at {address}; is the service running?"
                        await asyncio.sleep(ASK_AGAIN_S)
        except TimeoutError:
            raise Unavailable(problem) from None

    async def stop_consuming(self) -> None:
        """Take no new delivery or request; those under way have a few seconds, then they go back to the broker."""
        workers = [*self._consumers.values(), *self._answerers.values()]
        await asyncio.gather(*(worker.stop(self._drain_s) for worker in workers))

    async def aclose(self) -> None:
        """Stop consuming and disconnect."""
        await self.stop_consuming()
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        await self._unlink()

    async def _current(self) -> Link:
        try:
            async with asyncio.timeout(self._patience_s):
                while self._link is None or not self._linked.is_set():
                    await self._linked.wait()
                return self._link
        except TimeoutError:
            raise ConnectionError(
                f"RabbitMQ at {_host(self._url)} could not be reached in {self._patience_s:g} s: {self._failure};"
                " is OSMOSIS_BUS_URL right?"
            ) from None

    async def _keep_linked(self) -> None:
        while True:
            waits = wait_random_exponential(multiplier=RECONNECT_FIRST_S, max=RECONNECT_MOST_S)
            async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type(LINK_ERRORS)):
                with attempt:
                    await self._relink()
            assert self._link is not None
            await self._link.lost.wait()
            self._failure = "the last one was lost"
            await self._unlink()

    async def _relink(self) -> None:
        """A new link with everything on it; it takes facts and requests once all of that stands."""
        link: Link | None = None
        try:
            name = f"osmosis {socket.gethostname()}:{os.getpid()}"
            # Cleared in the very moment of the loss, so that nobody who waits for a link is given a lost one.
            link = await Link.open(self._url, name, on_lost=self._linked.clear)
            with link_errors():
                await self._furnish(link)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            _log.warning("no link to RabbitMQ yet", host=_host(self._url), error=self._failure)
            if link is not None:
                await link.close()
            raise
        self._link = link
        self._linked.set()

    async def _furnish(self, link: Link) -> None:
        channel = await link.channel()
        await declare_exchange(channel, self._names)
        await link.retire(channel)
        for spec in list(self._declared.values()):
            await self._declare(link, spec)
        self._asker = await Asker.open(link)
        for worker in [*self._consumers.values(), *self._answerers.values()]:
            await worker.attach(link)

    async def _unlink(self) -> None:
        link, asker = self._link, self._asker
        self._linked.clear()
        self._link = self._asker = None
        if asker is not None:
            asker.lose()
        if link is not None:
            await link.close()


def _host(url: str) -> str:
    """The address without its credentials."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (5671 if parts.scheme == 'amqps' else 5672)}"
