"""Buses for tests: over the broker that the environment names, with a prefix of the test's own, behind a wire to cut."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import aio_pika

from libs.common.bus import Bus, QueueSpec, RetryPolicy
from libs.common.bus.local import LocalBus
from libs.common.bus.rabbitmq import RabbitBus
from libs.common.bus.rabbitmq.topology import Names
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope, fact_types
from libs.common.contracts.requests import Caller, RequestMessage
from libs.common.identifiers import WorkspaceId

VARIABLE = "OSMOSIS_TEST_AMQP_URL"
SERVICES = ("registry", "scheduler", "trainer", "rollout", "rewards", "metrics", "gateway")


def amqp_url() -> str:
    """The broker of the tests."""
    return os.environ.get(VARIABLE, "amqp://guest:guest@127.0.0.1:5672/")


def fact(
    subject: str, number: int, *, key: str = "test.counted", id: str | None = None, source: str = "test"
) -> Envelope:
    """A fact that no service states."""
    return Envelope(
        id=id or f"{key}-{subject}-{number}",
        source=f"/osmosis/{source}",
        type=f"osmosis.{key}.v1",
        subject=subject,
        time=datetime.now(UTC),
        workspaceid=WorkspaceId("ws_test"),
        data={"number": number},
    )


def request(
    name: str = "test.ask",
    *,
    seconds: float = 10,
    idempotency_key: str | None = None,
    data: dict[str, Any] | None = None,
) -> RequestMessage:
    """A request with a deadline in so many seconds."""
    return RequestMessage(
        id=uuid.uuid4().hex,
        name=name,
        caller=Caller(kind="root"),
        deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        idempotency_key=idempotency_key,
        data=data or {},
    )


async def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.002)


class Ear:
    """A handler and a dead-letter sink that remember; `on` says what a fact does before it is handled."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, int]] = []
        self.deliveries: list[tuple[str, int, int]] = []
        self.dead: list[tuple[Envelope, int, str]] = []
        self.at_work: set[tuple[str, int]] = set()
        self.most_at_work = 0
        self.overlapping = False

    async def on(self, envelope: Envelope, delivery: int) -> None:
        """Raise to fail, wait to be slow."""

    async def hear(self, envelope: Envelope, delivery: int) -> None:
        """The handler."""
        what = (envelope.subject, int(envelope.data["number"]))
        self.deliveries.append((*what, delivery))
        self.overlapping |= any(subject == envelope.subject for subject, _ in self.at_work)
        self.at_work.add(what)
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        try:
            await self.on(envelope, delivery)
        finally:
            self.at_work.discard(what)
        self.handled.append(what)

    async def bury(self, envelope: Envelope, deliveries: int, error: str) -> None:
        """The sink."""
        self.dead.append((envelope, deliveries, error))

    def numbers(self, subject: str) -> list[int]:
        """What was handled of a subject, in order."""
        return [number for name, number in self.handled if name == subject]


class BusWorld:
    """Buses of one kind that reach each other, as processes of one platform do."""

    def __init__(self, kind: Literal["local", "rabbitmq"]) -> None:
        self.kind = kind
        self.prefix = f"test-{uuid.uuid4().hex[:8]}-"
        self._local = LocalBus(SystemClock())
        self._buses: list[Bus] = []
        self._wires: list[Wire] = []
        self._queues: dict[str, QueueSpec] = {}
        self._addresses = ["svc", "nobody"]

    async def bus(self) -> Bus:
        """A started bus: one more process, or the one process that there is."""
        bus = (
            self._local
            if self.kind == "local"
            else RabbitBus(amqp_url(), SystemClock(), prefix=self.prefix, drain_s=0.2)
        )
        return await self._started(bus)

    async def wired(self) -> tuple[RabbitBus, Wire]:
        """A started bus over RabbitMQ behind a wire of its own."""
        wire = await Wire(amqp_url()).start()
        self._wires.append(wire)
        bus = RabbitBus(wire.url, SystemClock(), prefix=self.prefix, drain_s=0.2)
        await self._started(bus)
        return bus, wire

    async def _started(self, bus: Bus) -> Bus:
        await bus.start()
        self._buses.append(bus)
        return bus

    def queue(
        self,
        name: str = "test",
        *,
        bindings: tuple[str, ...] = ("test.counted",),
        ordered: bool = True,
        prefetch: int = 64,
        delays_s: tuple[float, ...] = (0.01, 0.02),
    ) -> QueueSpec:
        """A queue that is deleted in the end."""
        spec = QueueSpec(name, bindings, ordered=ordered, prefetch=prefetch, retry=RetryPolicy(delays_s))
        self._queues[f"{name}{ordered}{delays_s}"] = spec
        return spec

    async def aclose(self) -> None:
        """Close every bus and leave nothing on the broker."""
        for bus in self._buses:
            await bus.aclose()
        for wire in self._wires:
            await wire.aclose()
        if self.kind == "rabbitmq":
            await delete_from_broker(amqp_url(), self.prefix, self._queues.values(), self._addresses)


def delete_prefix(url: str, prefix: str) -> None:
    """Everything that a platform with this prefix left on the broker, gone. AMQP cannot list: the names are known."""
    queues = [QueueSpec(f"{service}.facts", ()) for service in SERVICES]
    keys = sorted({kind.KEY for kind in fact_types().values()})
    queues += [QueueSpec(f"{service}.work.{key}", (), ordered=False) for service in SERVICES for key in keys]
    asyncio.run(delete_from_broker(url, prefix, queues, SERVICES))


async def delete_from_broker(
    url: str, prefix: str, queues: Iterable[QueueSpec], addresses: Iterable[str]
) -> None:
    """Delete queues, those of addresses, and the exchange; what does not exist is no error."""
    names = Names(prefix)
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in [name for spec in queues for name in names.of_queue(spec)]:
            await channel.queue_delete(name)
        for address in addresses:
            await channel.queue_delete(names.requests(address))
        await channel.exchange_delete(names.events)


class Wire:
    """A TCP port that passes everything on to the broker, until it is cut."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.whole = True

    async def start(self) -> Wire:
        """Listen on any free port; `url` is the broker's address through this wire."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        credentials, _, _ = self._parts.netloc.rpartition("@")
        self.url = urlunsplit(self._parts._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
        return self

    def cut(self) -> None:
        """Break every connection at once, as a lost host does; new ones are refused until `mend`."""
        self.whole = False
        self.snap()

    def snap(self) -> None:
        """Break every connection at once; new ones are taken."""
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        """Take connections again."""
        self.whole = True

    async def aclose(self) -> None:
        """Stop."""
        self.cut()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.whole:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port or 5672)
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(self._pass_on(source, target))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        self._writers.discard(target)
        target.transport.abort()
