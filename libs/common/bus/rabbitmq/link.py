"""One connection to the broker with its channels: either all of it works, or none.

A link that lost its connection, a channel or a consumer is lost for good; the bus makes a new one. So nothing of an
old connection can be confirmed or acknowledged on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import aio_pika
import aiormq
import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, DeliveryError
from pamqp.commands import Basic
from pamqp.common import FieldValue

from libs.common.contracts.envelope import Envelope

_log = structlog.get_logger(__name__)
CONNECT_TIMEOUT_S = 10
HEARTBEAT_S = 15
SETTLE_TIMEOUT_S = 5
LINK_ERRORS: tuple[type[Exception], ...] = (*CONNECTION_EXCEPTIONS, asyncio.InvalidStateError, TimeoutError)
"""What a broken connection or channel raises from any call on it."""
_PERSISTENT = 2


@contextmanager
def link_errors() -> Generator[None]:
    """Calls on a link inside: the cancellation that the library makes of a broken connection is raised as an error.

    Raises:
        ConnectionError: instead of a cancellation that nobody asked for.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionError("the connection to RabbitMQ broke") from error


class Link:
    """A connection, its channel for publishing with confirms, and whatever else is opened on it."""

    def __init__(self, connection: AbstractConnection, on_lost: Callable[[], None]) -> None:
        self._connection = connection
        self._on_lost = on_lost
        self._publications: set[asyncio.Task[None]] = set()
        self._confirmed: AbstractChannel | None = None
        self.lost = asyncio.Event()

    @classmethod
    async def open(cls, url: str, name: str, *, on_lost: Callable[[], None]) -> Link:
        """Connect. `on_lost` is called once the link is lost or closed; it must not raise.

        Raises:
            LINK_ERRORS: the broker does not answer, or refuses the credentials.
        """
        query = f"{'&' if urlsplit(url).query else '?'}heartbeat={HEARTBEAT_S}"
        with link_errors():
            connection = await aio_pika.connect(
                url if "heartbeat=" in url else url + query,
                timeout=CONNECT_TIMEOUT_S,
                client_properties={"connection_name": name},
            )
        link = cls(connection, on_lost)
        connection.close_callbacks.add(link._connection_closed)
        try:
            with link_errors():
                link._confirmed = await link.channel(returns=True)
        except BaseException:
            await link.close()
            raise
        return link

    async def channel(self, *, confirms: bool = True, returns: bool = False) -> AbstractChannel:
        """A channel whose end is the link's end. `returns`: what cannot be routed raises `PublishError`."""
        channel = await self.loose_channel(confirms=confirms, returns=returns)
        channel.close_callbacks.add(self._channel_closed)
        below = await channel.get_underlay_channel()
        below.on_consumer_cancel_callbacks.add(self._consumer_cancelled)
        return channel

    async def loose_channel(self, *, confirms: bool = True, returns: bool = False) -> AbstractChannel:
        """A channel that may end before the link does."""
        channel = self._connection.channel(publisher_confirms=confirms, on_return_raises=returns)
        await channel.initialize()
        return channel

    async def retire(self, channel: AbstractChannel) -> None:
        """Close a channel on purpose: what is not acknowledged on it goes back to its queue."""
        channel.close_callbacks.discard(self._channel_closed)
        await channel.close()

    def publish(
        self,
        envelope: Envelope,
        body: bytes,
        *,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> asyncio.Task[None]:
        """Send a fact; tasks started one after the other send in that order. Done when the broker has it on disk.

        A fact sent to a queue by name (no exchange) must reach it. The task raises ConnectionError when the broker
        refused the fact or the link was lost before the confirmation.
        """
        properties = Basic.Properties(
            content_type="application/cloudevents+json",
            delivery_mode=_PERSISTENT,
            message_id=envelope.id,
            message_type=envelope.type,
            headers=dict(headers or {}),
        )
        sending = self._publish(body, exchange, routing_key, properties)
        task = asyncio.create_task(sending, name=f"publish:{envelope.id}")
        self._publications.add(task)
        task.add_done_callback(self._publications.discard)
        return task

    async def _publish(
        self, body: bytes, exchange: str, routing_key: str, properties: Basic.Properties
    ) -> None:
        assert self._confirmed is not None
        try:
            channel = await self._confirmed.get_underlay_channel()
            with link_errors():
                # Not waiting for each write to drain is what makes facts that come together travel together.
                await cast("aiormq.Channel", channel).basic_publish(
                    body,
                    exchange=exchange,
                    routing_key=routing_key,
                    properties=properties,
                    mandatory=not exchange,
                    wait=False,
                )
        except DeliveryError as error:
            raise ConnectionError(f"the broker refused {properties.message_type}: {error}") from None
        except asyncio.CancelledError:
            if not self.lost.is_set():
                raise
            raise ConnectionError(self._unconfirmed(properties)) from None
        except LINK_ERRORS:
            raise ConnectionError(self._unconfirmed(properties)) from None

    def _unconfirmed(self, properties: Basic.Properties) -> str:
        return f"the connection broke before the broker confirmed {properties.message_type}; publish it again"

    async def close(self) -> None:
        """Disconnect. Whatever is not confirmed has failed when this returns; that holds for a lost link too."""
        self._lose()
        try:
            with link_errors():
                async with asyncio.timeout(SETTLE_TIMEOUT_S):
                    await self._connection.close()
        except LINK_ERRORS as error:
            _log.debug("the connection was not closed in good order", error=repr(error))
        for task in self._publications:
            task.cancel()
        await asyncio.gather(*self._publications, return_exceptions=True)

    def abandon(self, reason: str) -> None:
        """Give the link up."""
        if not self.lost.is_set():
            _log.warning("the link to RabbitMQ is lost", reason=reason)
            self._lose()

    def _lose(self) -> None:
        self.lost.set()
        self._on_lost()

    def _connection_closed(self, _connection: Any, error: BaseException | None) -> None:
        self.abandon(f"connection closed: {error!r}")

    def _channel_closed(self, _channel: Any, error: BaseException | None) -> None:
        self.abandon(f"channel closed: {error!r}")

    def _consumer_cancelled(self, _frame: Basic.Cancel) -> None:
        self.abandon("the broker cancelled a consumer: its queue was deleted or moved")
