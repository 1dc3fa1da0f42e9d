"""RabbitMQ behind a wire that breaks: what was promised holds, and everything comes back by itself."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.bus.rabbitmq import RabbitBus
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import Done, ReplyMessage, RequestMessage
from libs.common.errors import Unavailable
from tests.support.bus import BusWorld, Ear, Wire, amqp_url, fact, request, until

QUESTION = "common.list_dead_letters"
COMMAND = "common.replay_dead_letter"


async def test_a_fact_under_way_when_the_connection_breaks_comes_again_after_its_handler_has_ended(
    broker: BusWorld,
) -> None:
    bus, wire = await broker.wired()
    ear, go_on = Ear(), asyncio.Event()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.subject == "a" and envelope.data["number"] == 0 and not go_on.is_set():
            await go_on.wait()

    ear.on = on
    await bus.consume(broker.queue(), ear.hear, ear.bury)
    for n in range(3):
        await (await bus.publish(fact("a", n)))
    await until(lambda: ear.at_work)
    wire.snap()
    await until(lambda: not bus.healthy())
    await until(bus.healthy)
    await (await bus.publish(fact("b", 0)))
    await until(lambda: ear.numbers("b"))
    assert ear.at_work == {("a", 0)}
    go_on.set()
    await until(lambda: ear.numbers("a") == [0, 0, 1, 2])
    assert not ear.overlapping


async def test_a_fact_waiting_for_its_next_delivery_when_the_connection_breaks_comes_again(
    broker: BusWorld,
) -> None:
    bus, wire = await broker.wired()
    ear = Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if len(ear.deliveries) == 1:
            raise ValueError("the first time")

    ear.on = on
    await bus.consume(broker.queue(delays_s=(3600.0,)), ear.hear, ear.bury)
    await bus.publish(fact("a", 0))
    await until(lambda: ear.deliveries)
    wire.snap()
    await until(lambda: ear.handled)
    assert ear.deliveries == [("a", 0, 1), ("a", 0, 1)]


async def test_an_unordered_fact_is_not_worked_on_twice_at_once_after_a_break(broker: BusWorld) -> None:
    bus, wire = await broker.wired()
    ear, go_on = Ear(), asyncio.Event()

    async def on(envelope: Envelope, delivery: int) -> None:
        await go_on.wait()

    ear.on = on
    await bus.consume(broker.queue(ordered=False), ear.hear, ear.bury)
    await bus.publish(fact("a", 0))
    await until(lambda: ear.at_work)
    wire.snap()
    await until(lambda: not bus.healthy())
    await until(bus.healthy)
    await (await bus.publish(fact("b", 0)))
    await until(lambda: len(ear.at_work) == 2)
    assert len(ear.deliveries) == 2
    go_on.set()
    await until(lambda: len(ear.handled) == 3)
    assert ear.numbers("a") == [0, 0]


async def test_publishing_without_a_link_fails_and_works_again_once_there_is_one(broker: BusWorld) -> None:
    bus, wire = await broker.wired()
    ear = Ear()
    await bus.consume(broker.queue(), ear.hear, ear.bury)
    wire.cut()
    await until(lambda: not bus.healthy())
    with pytest.raises(ConnectionError, match="publish again"):
        await bus.publish(fact("a", 0))
    wire.mend()
    await until(bus.healthy)
    await (await bus.publish(fact("a", 1)))
    await until(lambda: ear.handled == [("a", 1)])


async def test_whoever_publishes_failed_facts_again_in_order_keeps_the_order(broker: BusWorld) -> None:
    bus, wire = await broker.wired()
    reader, ear = await broker.bus(), Ear()
    await reader.consume(broker.queue(), ear.hear, ear.bury)
    facts = [fact("a", n) for n in range(300)]
    first_of_this_link = 0
    while first_of_this_link < len(facts):
        try:
            sent = [await bus.publish(each) for each in facts[first_of_this_link:]]
        except ConnectionError:
            await until(bus.healthy)
            continue
        if first_of_this_link == 0:
            await sent[0]
            wire.snap()
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert all(result is None or isinstance(result, ConnectionError) for result in results)
        failed = [n for n, result in enumerate(results) if result is not None]
        first_of_this_link = first_of_this_link + failed[0] if failed else len(facts)
    await until(lambda: ear.numbers("a")[-1:] == [299])
    firsts = list(dict.fromkeys(ear.numbers("a")))
    assert firsts == list(range(300))


async def test_a_request_under_way_when_the_connection_breaks_is_unavailable_and_the_next_is_answered(
    broker: BusWorld,
) -> None:
    server = await broker.bus()
    client, wire = await broker.wired()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(message: RequestMessage) -> ReplyMessage:
        asked.set()
        await go_on.wait()
        return ReplyMessage.of(message, Done())

    await server.serve("svc", answer)
    asking = asyncio.create_task(client.call("svc", request(seconds=60)))
    await asked.wait()
    wire.snap()
    with pytest.raises(Unavailable, match="connection to RabbitMQ broke"):
        await asking
    go_on.set()
    assert (await client.call("svc", request())).error is None


async def test_a_question_waits_for_the_link_until_its_deadline(broker: BusWorld) -> None:
    bus, wire = await broker.wired()

    async def answer(message: RequestMessage) -> ReplyMessage:
        return ReplyMessage.of(message, Done())

    await bus.serve("svc", answer)
    wire.cut()
    await until(lambda: not bus.healthy())
    with pytest.raises(Unavailable, match="was not answered within"):
        await bus.call("svc", request(seconds=0.1))
    asking = asyncio.create_task(bus.call("svc", request()))
    wire.mend()
    assert (await asking).error is None


@pytest.mark.parametrize(
    ("name", "key", "answered"),
    [(QUESTION, None, True), (COMMAND, "a key", True), (COMMAND, None, False)],
    ids=["a question", "a command with a key", "a command without a key"],
)
async def test_what_the_one_who_took_a_request_leaves_unanswered_is_handled_again_if_that_is_safe(
    broker: BusWorld, name: str, key: str | None, answered: bool
) -> None:
    client, second = await broker.bus(), await broker.bus()
    first, wire = await broker.wired()
    asked, times = asyncio.Event(), list[str]()

    async def never(message: RequestMessage) -> ReplyMessage:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def answer(message: RequestMessage) -> ReplyMessage:
        times.append(message.name)
        return ReplyMessage.of(message, Done())

    await first.serve("svc", never)
    asking = asyncio.create_task(client.call("svc", request(name, idempotency_key=key)))
    await asked.wait()
    await second.serve("svc", answer)
    wire.cut()
    reply = await asking
    assert times == ([name] if answered else [])
    assert (reply.error is None) == answered
    if not answered:
        with pytest.raises(Unavailable, match="look whether it was done"):
            reply.open(Done)


async def test_what_stood_only_on_a_lost_broker_is_declared_again(broker: BusWorld) -> None:
    """Here the queue is deleted under its consumer, which is what a broker without its disk looks like."""
    import aio_pika

    bus, ear, queue = await broker.bus(), Ear(), broker.queue()
    await bus.consume(queue, ear.hear, ear.bury)
    async with await aio_pika.connect(amqp_url()) as connection:
        await (await connection.channel()).queue_delete(f"{broker.prefix}osmosis.test")
    await until(lambda: not bus.healthy())
    await until(bus.healthy)
    await (await bus.publish(fact("a", 1)))
    await until(lambda: ear.handled == [("a", 1)])


async def test_a_broker_that_cannot_be_reached_is_named_without_its_password() -> None:
    wire = await Wire(amqp_url()).start()
    wire.cut()
    url = wire.url.replace("guest:guest@", "someone:hunter2@")
    bus = RabbitBus(url, SystemClock(), patience_s=0.3)
    with pytest.raises(
        ConnectionError, match=r"127\.0\.0\.1:\d+ could not be reached.*OSMOSIS_BUS_URL"
    ) as caught:
        await bus.start()
    assert "hunter2" not in str(caught.value)
    await wire.aclose()
