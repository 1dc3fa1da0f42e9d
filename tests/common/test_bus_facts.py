"""What a published fact may rely on, over both buses."""

from __future__ import annotations

import asyncio
import time

import pytest

from libs.common.contracts.envelope import Envelope
from libs.common.errors import TooLarge
from tests.support.bus import BusWorld, Ear, fact, until

BOTH_KINDS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])


async def test_facts_of_a_subject_arrive_in_the_order_of_publication(world: BusWorld) -> None:
    bus, ear = await world.bus(), Ear()
    await bus.consume(world.queue(), ear.hear, ear.bury)
    confirmed = [await bus.publish(fact(subject, n)) for n in range(40) for subject in ("a", "b", "c")]
    await asyncio.gather(*confirmed)
    await until(lambda: len(ear.handled) == 120)
    assert all(ear.numbers(subject) == list(range(40)) for subject in ("a", "b", "c"))
    assert not ear.overlapping


async def test_a_failing_fact_holds_back_its_own_subject_only(world: BusWorld) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.subject == "bad" and envelope.data["number"] == 0 and len(ear.numbers("good")) < 3:
            raise ValueError("not until the others are done")

    ear.on = on
    await bus.consume(world.queue(prefetch=1, delays_s=(0.02,) * 200), ear.hear, ear.bury)
    for n in range(3):
        await bus.publish(fact("bad", n))
        await bus.publish(fact("good", n))
    await until(lambda: len(ear.handled) == 6)
    assert ear.numbers("bad") == ear.numbers("good") == [0, 1, 2]
    assert ear.handled[:3] == [("good", 0), ("good", 1), ("good", 2)]
    tries = [delivery for subject, n, delivery in ear.deliveries if (subject, n) == ("bad", 0)]
    assert tries == list(range(1, len(tries) + 1))
    assert len(tries) > 1


@BOTH_KINDS
async def test_a_failed_delivery_comes_again_after_its_delay(world: BusWorld, ordered: bool) -> None:
    bus, ear, times = await world.bus(), Ear(), list[float]()

    async def on(envelope: Envelope, delivery: int) -> None:
        times.append(time.monotonic())
        if delivery < 3:
            raise ValueError(f"delivery {delivery}")

    ear.on = on
    await bus.consume(world.queue(ordered=ordered, delays_s=(0.05, 0.15)), ear.hear, ear.bury)
    await bus.publish(fact("a", 1))
    await until(lambda: ear.handled)
    assert ear.deliveries == [("a", 1, 1), ("a", 1, 2), ("a", 1, 3)]
    assert times[1] - times[0] >= 0.049
    assert times[2] - times[1] >= 0.149


async def test_an_unordered_fact_that_waits_for_its_delay_takes_nobodys_place(world: BusWorld) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.subject == "bad" and delivery == 1:
            raise ValueError("once")

    ear.on = on
    await bus.consume(world.queue(ordered=False, prefetch=1, delays_s=(0.3,)), ear.hear, ear.bury)
    await bus.publish(fact("bad", 0))
    for n in range(5):
        await bus.publish(fact("good", n))
    await until(lambda: len(ear.handled) == 6)
    assert ear.handled[-1] == ("bad", 0)


@BOTH_KINDS
async def test_a_fact_that_fails_every_time_goes_to_the_sink(world: BusWorld, ordered: bool) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.data["number"] == 0:
            raise ValueError("what is wrong")

    ear.on = on
    await bus.consume(world.queue(ordered=ordered), ear.hear, ear.bury)
    first, second = fact("a", 0), fact("a", 1)
    confirmed = [await bus.publish(first), await bus.publish(second)]
    await until(lambda: ear.dead and ear.handled)
    assert ear.dead == [(first, 3, "ValueError: what is wrong")]
    assert ear.handled == [("a", 1)]
    await asyncio.gather(*confirmed)


@BOTH_KINDS
async def test_a_sink_that_fails_is_called_until_it_keeps_the_fact(world: BusWorld, ordered: bool) -> None:
    bus, ear, calls = await world.bus(), Ear(), list[int]()

    async def on(envelope: Envelope, delivery: int) -> None:
        raise ValueError("always")

    async def bury(envelope: Envelope, deliveries: int, error: str) -> None:
        calls.append(deliveries)
        if len(calls) < 2:
            raise ConnectionError("the database is away")
        await ear.bury(envelope, deliveries, error)

    ear.on = on
    await bus.consume(world.queue(ordered=ordered, delays_s=()), ear.hear, bury)
    confirmed = await bus.publish(fact("a", 0))
    await until(lambda: ear.dead)
    await confirmed
    assert calls == [1, 1]
    assert len(ear.deliveries) == 1


@BOTH_KINDS
async def test_a_slow_handler_holds_up_nobody_else(world: BusWorld, ordered: bool) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.subject == "slow":
            await until(lambda: len(ear.numbers("quick")) == 5)

    ear.on = on
    await bus.consume(world.queue(ordered=ordered), ear.hear, ear.bury)
    await bus.publish(fact("slow", 0))
    for n in range(5):
        await bus.publish(fact("quick", n))
    await until(lambda: len(ear.handled) == 6)
    assert ear.handled[-1] == ("slow", 0)


@BOTH_KINDS
async def test_no_more_handlers_are_at_work_than_the_queue_allows(world: BusWorld, ordered: bool) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        await asyncio.sleep(0.005)

    ear.on = on
    await bus.consume(world.queue(ordered=ordered, prefetch=3), ear.hear, ear.bury)
    for n in range(12):
        await bus.publish(fact(f"subject {n}", n))
    await until(lambda: len(ear.handled) == 12)
    assert ear.most_at_work == 3


@BOTH_KINDS
async def test_what_is_published_before_the_first_consumer_waits_for_it(
    world: BusWorld, ordered: bool
) -> None:
    bus, ear = await world.bus(), Ear()
    queue = world.queue(ordered=ordered)
    await bus.declare(queue)
    for n in range(3):
        await bus.publish(fact("a", n))
    await bus.consume(queue, ear.hear, ear.bury)
    await until(lambda: len(ear.handled) == 3)
    assert sorted(ear.numbers("a")) == [0, 1, 2]


async def test_a_fact_reaches_every_queue_that_wants_it_and_no_other(world: BusWorld) -> None:
    bus, first, second, other = await world.bus(), Ear(), Ear(), Ear()
    await bus.consume(world.queue("first"), first.hear, first.bury)
    await bus.consume(
        world.queue("second", bindings=("test.counted", "test.more"), ordered=False), second.hear, second.bury
    )
    await bus.consume(world.queue("other", bindings=("test.other",)), other.hear, other.bury)
    await bus.publish(fact("a", 1))
    await bus.publish(fact("a", 2, key="test.more"))
    await bus.publish(fact("a", 3, key="test.other"))
    await until(lambda: len(second.handled) == 2 and other.handled and first.handled)
    assert first.handled == [("a", 1)]
    assert sorted(second.handled) == [("a", 1), ("a", 2)]
    assert other.handled == [("a", 3)]


async def test_a_fact_that_nobody_wants_is_safe_at_once(world: BusWorld) -> None:
    bus = await world.bus()
    async with asyncio.timeout(5):
        await (await bus.publish(fact("a", 1, key="test.unheard")))


async def test_a_fact_over_the_limit_is_refused_with_the_remedy(world: BusWorld) -> None:
    bus, ear = await world.bus(), Ear()
    await bus.consume(world.queue(), ear.hear, ear.bury)
    large = fact("a", 1).model_copy(update={"data": {"number": 1, "text": "x" * 16 * 1024 * 1024}})
    with pytest.raises(TooLarge, match=r"osmosis\.test\.counted\.v1 of a has \d+ bytes.*blob store"):
        await bus.publish(large)
    await (await bus.publish(fact("a", 2)))
    await until(lambda: ear.handled == [("a", 2)])


async def test_a_large_fact_below_the_limit_arrives(world: BusWorld) -> None:
    bus, ear, texts = await world.bus(), Ear(), list[str]()

    async def on(envelope: Envelope, delivery: int) -> None:
        texts.append(envelope.data["text"])

    ear.on = on
    await bus.consume(world.queue(), ear.hear, ear.bury)
    text = "ü" * 4 * 1024 * 1024
    await bus.publish(fact("a", 1).model_copy(update={"data": {"number": 1, "text": text}}))
    await until(lambda: texts)
    assert texts == [text]


async def test_what_one_handler_changes_in_a_fact_no_other_sees(world: BusWorld) -> None:
    bus, seen = await world.bus(), list[int]()

    async def spoil(envelope: Envelope, delivery: int) -> None:
        seen.append(envelope.data["number"])
        envelope.data["number"] = -1

    ear = Ear()
    await bus.consume(world.queue("first"), spoil, ear.bury)
    await bus.consume(world.queue("second"), spoil, ear.bury)
    sent = fact("a", 7)
    await bus.publish(sent)
    await until(lambda: len(seen) == 2)
    assert seen == [7, 7]
    assert sent.data == {"number": 7}


async def test_a_handler_whose_own_work_is_cancelled_has_failed(world: BusWorld) -> None:
    bus, ear = await world.bus(), Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if delivery == 1:
            raise asyncio.CancelledError("something inside the handler was cancelled")

    ear.on = on
    await bus.consume(world.queue(), ear.hear, ear.bury)
    await bus.publish(fact("a", 1))
    await until(lambda: ear.handled)
    assert ear.deliveries == [("a", 1, 1), ("a", 1, 2)]


async def test_a_bus_is_healthy_from_start_to_close(world: BusWorld) -> None:
    bus = await world.bus()
    assert bus.healthy()
    await bus.aclose()
    assert not bus.healthy()
    with pytest.raises((RuntimeError, OSError)):
        await bus.publish(fact("a", 1))
