"""Buses for tests: over the broker that the environment names, with a prefix of the test's own, behind a wire to cut."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

import aio_pika

from libs.common.bus import QueueSpec
from libs.common.bus.rabbitmq.topology import Names
from libs.common.contracts.envelope import Envelope, fact_types
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
