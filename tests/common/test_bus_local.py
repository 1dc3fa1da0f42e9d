"""What only the bus inside one process does: a stop leaves the facts that are not settled to the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.common.bus import QueueSpec, RetryPolicy
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.errors import Unavailable
from tests.support.bus import Ear, fact, request, until


@pytest.fixture
async def bus() -> AsyncIterator[LocalBus]:
    made = LocalBus(SystemClock())
    await made.start()
    yield made
    await made.aclose()


QUEUE = QueueSpec("test", ("test.counted",), retry=RetryPolicy((60.0,)))


async def test_a_fact_is_confirmed_only_when_every_queue_has_settled_it(bus: LocalBus) -> None:
    quick, slow, go_on = Ear(), Ear(), asyncio.Event()

    async def on(envelope: Envelope, delivery: int) -> None:
        await go_on.wait()

    slow.on = on
    await bus.consume(QUEUE, quick.hear, quick.bury)
    await bus.consume(QueueSpec("slow", QUEUE.bindings), slow.hear, slow.bury)
    confirmed = await bus.publish(fact("a", 1))
    await until(lambda: quick.handled and slow.at_work)
    assert not confirmed.done()
    go_on.set()
    async with asyncio.timeout(5):
        await confirmed


@pytest.mark.parametrize("state", ["unheard", "at work", "in line", "waiting for its next delivery"])
async def test_a_stop_cancels_the_confirmation_of_what_is_not_settled(bus: LocalBus, state: str) -> None:
    ear = Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if state == "waiting for its next delivery":
            raise ValueError("once")
        await asyncio.Event().wait()

    ear.on = on
    if state == "unheard":
        await bus.declare(QUEUE)
    else:
        await bus.consume(QUEUE, ear.hear, ear.bury)
    confirmed = [await bus.publish(fact("a", n)) for n in range(2)]
    if state != "unheard":
        await until(lambda: ear.deliveries)
    await bus.stop_consuming()
    watched = confirmed[1] if state == "in line" else confirmed[0]
    assert watched.cancelled()
    assert ear.handled == []
    assert ear.at_work == set()


async def test_nothing_is_taken_after_a_stop(bus: LocalBus) -> None:
    ear = Ear()
    await bus.consume(QUEUE, ear.hear, ear.bury)
    await bus.stop_consuming()
    with pytest.raises(RuntimeError, match="closed"):
        await bus.publish(fact("a", 1))


async def test_an_address_that_nobody_serves_is_named_at_once(bus: LocalBus) -> None:
    async with asyncio.timeout(1):
        with pytest.raises(Unavailable, match="nobody answers at nobody"):
            await bus.call("nobody", request(seconds=60))


async def test_who_asks_a_service_that_is_stopped_is_told(bus: LocalBus) -> None:
    asked = asyncio.Event()

    async def never(message: RequestMessage) -> ReplyMessage:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    await bus.serve("svc", never)
    asking = asyncio.create_task(bus.call("svc", request(seconds=60)))
    await asked.wait()
    await bus.stop_consuming()
    with pytest.raises(Unavailable, match="the platform stops"):
        await asking
