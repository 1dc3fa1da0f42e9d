"""Facts a second through the bus over RabbitMQ, beside bare aio-pika doing the same.

Both publish the same bytes with publisher confirms through a durable topic exchange into a quorum queue and handle and
acknowledge every one; the bus on top keeps the order of each subject, checks each fact against its contract, counts
deliveries and stands ready for retries and dead letters. Rounds alternate; the medians are compared.

`python benchmarks/bus_throughput.py --facts 5000 --rounds 3`; the broker is that of the tests, started where none runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from libs.common.bus import QueueSpec
from libs.common.bus.rabbitmq import RabbitBus
from libs.common.bus.rabbitmq.topology import Names
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope
from libs.common.identifiers import WorkspaceId
from tests.support.services import RABBITMQ, ensure

SUBJECTS = 50
BATCH = 500
"""As many as the outbox's relay hands over at once."""
PREFETCH = 1000
BYTES = 600


def facts(count: int) -> list[Envelope]:
    """Facts of about `BYTES` bytes, spread over subjects."""
    now = datetime.now(UTC)
    return [
        Envelope(
            id=f"evt_{uuid.uuid4().hex}",
            source="/osmosis/benchmark",
            type="osmosis.benchmark.counted.v1",
            subject=f"run_{number % SUBJECTS}",
            time=now,
            workspaceid=WorkspaceId("ws_1"),
            data={"number": number, "text": "x" * (BYTES - 300)},
        )
        for number in range(count)
    ]


class Count:
    """Says when everything was handled."""

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self.done = asyncio.Event()

    def one(self) -> None:
        """One more."""
        self._left -= 1
        if self._left == 0:
            self.done.set()


async def through_the_bus(url: str, sent: list[Envelope]) -> float:
    """Facts a second, from the first publication to the last that was handled and confirmed."""
    prefix, count = f"bench-{uuid.uuid4().hex[:8]}-", Count(len(sent))
    bus = RabbitBus(url, SystemClock(), prefix=prefix)
    queue = QueueSpec("bench", ("benchmark.counted",))

    async def handle(_envelope: Envelope, _delivery: int) -> None:
        count.one()

    async def bury(_envelope: Envelope, _deliveries: int, error: str) -> None:
        raise RuntimeError(error)

    await bus.start()
    try:
        await bus.consume(queue, handle, bury)
        began = time.perf_counter()
        for start in range(0, len(sent), BATCH):
            await asyncio.gather(*[await bus.publish(each) for each in sent[start : start + BATCH]])
        await count.done.wait()
        return len(sent) / (time.perf_counter() - began)
    finally:
        await bus.aclose()
        names = Names(prefix)
        await delete(url, [*names.of_queue(queue)], names.events)


async def through_aio_pika(url: str, sent: list[Envelope]) -> float:
    """The same with the library alone."""
    name, count = f"bench-{uuid.uuid4().hex[:8]}", Count(len(sent))
    bodies = [each.model_dump_json().encode() for each in sent]

    async def handle(message: AbstractIncomingMessage) -> None:
        json.loads(message.body)
        count.one()
        await message.ack()

    connection = await aio_pika.connect(url)
    try:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, "topic", durable=True)
        await channel.set_qos(PREFETCH)
        queue = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        await queue.bind(exchange, "benchmark.counted")
        await queue.consume(handle)
        publishing = await (await connection.channel()).get_exchange(name)

        async def publish(body: bytes) -> None:
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await publishing.publish(message, "benchmark.counted", mandatory=False)

        began = time.perf_counter()
        for start in range(0, len(bodies), BATCH):
            await asyncio.gather(*map(publish, bodies[start : start + BATCH]))
        await count.done.wait()
        return len(sent) / (time.perf_counter() - began)
    finally:
        await connection.close()
        await delete(url, [name], name)


async def delete(url: str, queues: list[str], exchange: str) -> None:
    """Leave nothing on the broker."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for queue in queues:
            await channel.queue_delete(queue)
        await channel.exchange_delete(exchange)


async def compare(url: str, count: int, rounds: int) -> dict[str, float]:
    """Medians of both and their ratio."""
    sent, bus, bare = facts(count), list[float](), list[float]()
    for number in range(rounds):
        bare.append(await through_aio_pika(url, sent))
        bus.append(await through_the_bus(url, sent))
        print(f"round {number + 1}: aio-pika {bare[-1]:,.0f} facts/s, bus {bus[-1]:,.0f} facts/s")
    ours, theirs = statistics.median(bus), statistics.median(bare)
    return {
        "facts": count,
        "bus_facts_per_second": round(ours, 1),
        "aio_pika_facts_per_second": round(theirs, 1),
        "ratio": round(ours / theirs, 3),
    }


def main() -> None:
    """Measure and print; the last line is JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(compare(ensure(RABBITMQ), options.facts, options.rounds))))


if __name__ == "__main__":
    main()
