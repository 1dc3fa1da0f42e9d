"""The bus: what every service may rely on, whichever implementation carries it.

Promised by both implementations: a published fact reaches every queue bound to its routing key at least once, also
across a crash of either side; facts of one subject and source reach an ordered queue in the order in which they were
published, a failing one holding back its own subject only; a fact whose handler fails on every delivery of the retry
policy goes to the queue's dead-letter sink. Exactly-once effects come from the inbox (`libs.common.service`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import ReplyMessage, RequestMessage

EVENTS_EXCHANGE = "osmosis.events"


@dataclass(frozen=True)
class RetryPolicy:
    """Waits in seconds between deliveries; one delivery more than waits, then the dead-letter sink."""

    delays_s: tuple[float, ...] = (0.2, 1.0, 5.0, 15.0, 60.0)

    @property
    def deliveries(self) -> int:
        """How often a handler sees a fact at most."""
        return len(self.delays_s) + 1


@dataclass(frozen=True)
class QueueSpec:
    """A durable queue. `ordered`: one consumer at a time and per-subject order; else competing consumers."""

    name: str
    bindings: tuple[str, ...]
    ordered: bool = True
    prefetch: int = 64
    retry: RetryPolicy = RetryPolicy()


FactHandler = Callable[[Envelope, int], Awaitable[None]]
"""`(envelope, delivery from 1)`; raising asks for another delivery."""

DeadLetterSink = Callable[[Envelope, int, str], Awaitable[None]]
"""`(envelope, deliveries, last error)`: keeps what cannot be handled. It is called until it returns."""

RequestHandler = Callable[[RequestMessage], Awaitable[ReplyMessage]]


class Bus(Protocol):
    """Facts to queues, requests to addresses."""

    async def start(self) -> None:
        """Connect; returns when publishing works."""
        ...

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        """Hand a fact over. Facts handed over one after the other keep that order.

        The future is done when the fact is safe: the caller may then forget it. It fails when the broker refused the
        fact or the connection broke: publish again.
        """
        ...

    async def consume(self, queue: QueueSpec, handler: FactHandler, dead_letter: DeadLetterSink) -> None:
        """Declare a queue with its bindings and start to consume it; returns when the queue exists."""
        ...

    async def declare(self, queue: QueueSpec) -> None:
        """Make the queue exist with its bindings, without consuming: nothing published from then on is missed."""
        ...

    async def serve(self, address: str, handler: RequestHandler, *, concurrency: int = 64) -> None:
        """Answer the requests sent to an address; several servers of one address share the work."""
        ...

    async def call(self, address: str, message: RequestMessage) -> ReplyMessage:
        """Ask and wait for the answer until the message's deadline.

        Raises:
            Unavailable: nobody serves the address, or no answer came in time.
        """
        ...

    def healthy(self) -> bool:
        """Whether facts can be published at this moment."""
        ...

    async def stop_consuming(self) -> None:
        """Take no new delivery or request; returns when those under way are settled."""
        ...

    async def aclose(self) -> None:
        """Stop consuming and disconnect."""
        ...
