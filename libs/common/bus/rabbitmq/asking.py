"""Requests over RabbitMQ: a queue an address, replies straight to whoever asked (direct reply-to).

A request lives on the broker as long as its deadline. It is handled once: when the one who took it ended without
answering, a question, or a command with an idempotency key, is handled again; any other command is answered with
`Unavailable`, since it may have been done.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import PublishError
from pydantic import ValidationError

from libs.common.bus import RequestHandler
from libs.common.bus.answering import answer
from libs.common.bus.rabbitmq.link import LINK_ERRORS, Link, link_errors
from libs.common.bus.rabbitmq.topology import Names, declare_requests
from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.requests import ReplyMessage, RequestMessage, request_types
from libs.common.errors import Unavailable

_log = structlog.get_logger(__name__)
_REPLY_TO = "amq.rabbitmq.reply-to"


class NobodyThere(Exception):
    """The address has no queue: nobody has served it for a while. The request was not sent."""


class Asker:
    """Sends the requests of this process over one link and hands out the replies."""

    def __init__(self, link: Link, channel: AbstractChannel) -> None:
        self._link = link
        self._channel = channel
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    @classmethod
    async def open(cls, link: Link) -> Asker:
        """Listen for replies."""
        channel = await link.channel(returns=True)
        asker = cls(link, channel)
        replies = await channel.get_queue(_REPLY_TO, ensure=False)
        await replies.consume(asker._take, no_ack=True)
        return asker

    async def ask(self, queue: str, message: RequestMessage, left_s: float) -> ReplyMessage:
        """Send and wait for the reply; the caller minds the deadline.

        Raises:
            NobodyThere: the address has no queue.
            Unavailable: the link broke meanwhile.
        """
        reply = self._waiting[message.id] = asyncio.get_running_loop().create_future()
        try:
            with link_errors():
                await self._channel.default_exchange.publish(_message(message, left_s), queue)
                return ReplyMessage.model_validate_json(await reply)
        except PublishError:
            raise NobodyThere(queue) from None
        except LINK_ERRORS as error:
            if isinstance(error, TimeoutError):
                raise
            raise _broken(message.name) from None
        finally:
            del self._waiting[message.id]

    def lose(self) -> None:
        """The link is lost: nobody will be answered any more."""
        for reply in self._waiting.values():
            reply.cancel()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        reply = self._waiting.get(message.correlation_id or "")
        if reply is not None and not reply.done():
            reply.set_result(message.body)


def _message(message: RequestMessage, left_s: float) -> aio_pika.Message:
    return aio_pika.Message(
        encode(message),
        content_type="application/json",
        message_id=message.id,
        correlation_id=message.id,
        reply_to=_REPLY_TO,
        expiration=max(0.0, left_s),
    )


def _broken(name: str) -> Unavailable:
    return Unavailable(f"the connection to RabbitMQ broke before {name} was answered; try again")


@dataclass(frozen=True)
class _Session:
    link: Link
    channel: AbstractChannel


class Answerer:
    """Answers the requests of one address, over as many links as it takes."""

    def __init__(
        self, address: str, names: Names, handler: RequestHandler, concurrency: int, clock: Clock
    ) -> None:
        self._address = address
        self._names = names
        self._handler = handler
        self._concurrency = concurrency
        self._clock = clock
        self._session: _Session | None = None
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def attach(self, link: Link) -> None:
        """Serve over this link; a link that has it already is left as it is.

        Raises:
            LINK_ERRORS: the link broke.
        """
        async with self._opening:
            if self._stopped or (self._session is not None and self._session.link is link):
                return
            channel = await link.channel(confirms=False)
            self._session = session = _Session(link, channel)
            await channel.set_qos(self._concurrency)
            name = await declare_requests(channel, self._names, self._address)
            queue = await channel.get_queue(name, ensure=False)

            async def take(message: AbstractIncomingMessage) -> None:
                self._take(session, message)

            await queue.consume(take)

    async def stop(self, grace_s: float) -> None:
        """Take no more; the answers under way have `grace_s` seconds. The rest goes to other servers."""
        self._stopped = True
        async with self._opening:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=grace_s)
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._session is not None and not self._session.link.lost.is_set():
                with suppress(*LINK_ERRORS):
                    await self._session.link.retire(self._session.channel)

    def _take(self, session: _Session, message: AbstractIncomingMessage) -> None:
        if self._stopped or session.link.lost.is_set():
            return
        task = asyncio.create_task(self._answer(session, message), name=f"answer:{self._address}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, session: _Session, message: AbstractIncomingMessage) -> None:
        reply = await self._reply(message)
        if session.link.lost.is_set() or message.delivery_tag is None:
            return
        try:
            if reply is not None and message.reply_to:
                await session.channel.default_exchange.publish(
                    aio_pika.Message(reply, correlation_id=message.correlation_id),
                    message.reply_to,
                    mandatory=False,
                )
            await message.channel.basic_ack(message.delivery_tag, wait=False)
        except LINK_ERRORS as error:
            session.link.abandon(f"an answer could not be sent: {error!r}")

    async def _reply(self, message: AbstractIncomingMessage) -> bytes | None:
        try:
            refusal = _refusal(message.body) if message.redelivered else None
            return encode(refusal) if refusal else await answer(self._handler, message.body, self._clock)
        except ValidationError as error:
            _log.error(
                "what came as a request is none; it is dropped", address=self._address, error=str(error)
            )
            return None


def _refusal(body: bytes) -> ReplyMessage | None:
    """The answer to a request that somebody else took before; None when it may be handled again."""
    message = RequestMessage.model_validate_json(body)
    kind = request_types().get(message.name)
    if message.idempotency_key is not None or kind is None or not kind.COMMAND:
        return None
    ended = (
        f"the one who took {message.name} ended before answering: look whether it was done, then try again"
    )
    return ReplyMessage.of(message, Unavailable(ended))
