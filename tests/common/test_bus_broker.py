"""What RabbitMQ adds: several processes at one queue, facts that end processes, things that others put there."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest

from libs.common.bus.rabbitmq import QueueDiffers
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import Done, ReplyMessage, RequestMessage
from tests.support.bus import BusWorld, Ear, amqp_url, fact, request, until


async def test_processes_share_the_facts_of_an_unordered_queue(broker: BusWorld) -> None:
    first, second, ears = await broker.bus(), await broker.bus(), (Ear(), Ear())
    queue = broker.queue(ordered=False, prefetch=2)

    async def on(envelope: Envelope, delivery: int) -> None:
        # Nobody may take all: the first facts of each wait until the other has some too.
        await until(lambda: all(ear.deliveries for ear in ears))

    for bus, ear in zip((first, second), ears, strict=True):
        ear.on = on
        await bus.consume(queue, ear.hear, ear.bury)
    for n in range(20):
        await first.publish(fact("a", n))
    await until(lambda: sum(len(ear.handled) for ear in ears) == 20)
    assert sorted(ears[0].numbers("a") + ears[1].numbers("a")) == list(range(20))


async def test_one_process_at_a_time_handles_an_ordered_queue_and_the_next_goes_on_in_order(
    broker: BusWorld,
) -> None:
    first, second, ears = await broker.bus(), await broker.bus(), (Ear(), Ear())
    queue, both = broker.queue(), list[int]()

    async def on(envelope: Envelope, delivery: int) -> None:
        both.append(envelope.data["number"])

    for bus, ear in zip((first, second), ears, strict=True):
        ear.on = on
        await bus.consume(queue, ear.hear, ear.bury)
    for n in range(10):
        await second.publish(fact("a", n))
    await until(lambda: len(both) == 10)
    assert ears[0].numbers("a") == list(range(10))
    await first.aclose()
    for n in range(10, 20):
        await second.publish(fact("a", n))
    await until(lambda: len(both) == 20)
    assert ears[1].numbers("a") == list(range(10, 20))


async def test_a_stop_settles_what_is_at_work_and_gives_the_rest_to_others(broker: BusWorld) -> None:
    first, second, ears = await broker.bus(), await broker.bus(), (Ear(), Ear())
    queue, go_on = broker.queue(), asyncio.Event()

    async def on(envelope: Envelope, delivery: int) -> None:
        await go_on.wait()

    ears[0].on = on
    for bus, ear in zip((first, second), ears, strict=True):
        await bus.consume(queue, ear.hear, ear.bury)
    for n in range(5):
        await (await second.publish(fact("a", n)))
    await until(lambda: ears[0].at_work)
    stopping = asyncio.create_task(first.stop_consuming())
    for _ in range(10):
        await asyncio.sleep(0)
    go_on.set()
    await stopping
    await until(lambda: len(ears[1].handled) == 4)
    assert ears[0].numbers("a") == [0]
    assert ears[1].numbers("a") == [1, 2, 3, 4]


async def test_a_stop_ends_handlers_that_take_too_long_and_their_facts_go_to_others(broker: BusWorld) -> None:
    first, second, ears = await broker.bus(), await broker.bus(), (Ear(), Ear())
    queue = broker.queue(ordered=False)

    async def on(envelope: Envelope, delivery: int) -> None:
        await asyncio.Event().wait()

    ears[0].on = on
    await first.consume(queue, ears[0].hear, ears[0].bury)
    await first.publish(fact("a", 1))
    await until(lambda: ears[0].at_work)
    await first.stop_consuming()
    assert not ears[0].at_work
    await second.consume(queue, ears[1].hear, ears[1].bury)
    await until(lambda: ears[1].handled == [("a", 1)])


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_a_fact_that_ends_every_consumer_dies_alone(broker: BusWorld, ordered: bool) -> None:
    bus, wire = await broker.wired()
    ear = Ear()

    async def on(envelope: Envelope, delivery: int) -> None:
        if envelope.subject == "poison":
            wire.snap()
            await until(lambda: not bus.healthy())
        else:
            # Long enough to be under way, and thus to come back as well, whenever the poison ends the consumer.
            await asyncio.sleep(0.02)

    ear.on = on
    sender = await broker.bus()
    queue = broker.queue(ordered=ordered)
    await bus.declare(queue)
    for subject in ("before", "poison", "after"):
        for n in range(3 if subject != "poison" else 1):
            await (await sender.publish(fact(subject, n)))
    await bus.consume(queue, ear.hear, ear.bury)
    await until(lambda: ear.dead and len(set(ear.handled)) == 7, timeout_s=60)
    (envelope, _, error), *others = ear.dead
    assert (envelope.subject, others) == ("poison", [])
    assert "end the process" in error
    await (await sender.publish(fact("later", 0)))
    await until(lambda: ear.numbers("later"))


async def test_what_is_not_an_event_is_kept_for_the_operator(broker: BusWorld) -> None:
    bus, ear = await broker.bus(), Ear()
    await bus.consume(broker.queue(), ear.hear, ear.bury)
    async with await aio_pika.connect(amqp_url()) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(f"{broker.prefix}osmosis.events", ensure=False)
        await exchange.publish(aio_pika.Message(b"\xffno event"), "test.counted")
    await (await bus.publish(fact("a", 1)))
    await until(lambda: ear.dead and ear.handled)
    envelope, _, error = ear.dead[0]
    assert envelope.type == "osmosis.unreadable.v1"
    assert envelope.data == {"text": "\N{REPLACEMENT CHARACTER}no event"}
    assert "not an event" in error


async def test_a_queue_that_stands_with_other_arguments_is_named_and_nothing_else_suffers(
    broker: BusWorld,
) -> None:
    bus, ear = await broker.bus(), Ear()
    await bus.consume(broker.queue("good"), ear.hear, ear.bury)
    await bus.declare(broker.queue("taken", ordered=True))
    with pytest.raises(QueueDiffers, match=r"osmosis\.taken stands on the broker with other arguments"):
        await bus.declare(broker.queue("taken", ordered=False))
    assert bus.healthy()
    await (await bus.publish(fact("a", 1)))
    await until(lambda: ear.handled)


async def test_two_deployments_on_one_broker_do_not_hear_each_other(broker: BusWorld) -> None:
    other = BusWorld("rabbitmq")
    try:
        here, there, ear, other_ear = await broker.bus(), await other.bus(), Ear(), Ear()
        await here.consume(broker.queue(), ear.hear, ear.bury)
        await there.consume(other.queue(), other_ear.hear, other_ear.bury)
        await (await here.publish(fact("a", 1)))
        await (await there.publish(fact("a", 2)))
        await until(lambda: ear.handled and other_ear.handled)
        assert (ear.numbers("a"), other_ear.numbers("a")) == ([1], [2])
    finally:
        await other.aclose()


async def test_servers_of_one_address_share_the_questions(broker: BusWorld) -> None:
    client, answered, both = await broker.bus(), list[int](), asyncio.Event()
    for number in range(2):
        server = await broker.bus()

        async def answer(message: RequestMessage, number: int = number) -> ReplyMessage:
            answered.append(number)
            if set(answered) == {0, 1}:
                both.set()
            await both.wait()
            return ReplyMessage.of(message, Done())

        await server.serve("svc", answer, concurrency=1)
    await asyncio.gather(*(client.call("svc", request()) for _ in range(6)))
    assert set(answered) == {0, 1}
    assert len(answered) == 6


async def test_a_question_to_a_service_that_is_still_starting_is_answered(broker: BusWorld) -> None:
    client, server = await broker.bus(), await broker.bus()
    asking = asyncio.create_task(client.call("svc", request()))
    await asyncio.sleep(0)

    async def answer(message: RequestMessage) -> ReplyMessage:
        return ReplyMessage.of(message, Done())

    await server.serve("svc", answer)
    assert (await asking).error is None


async def test_a_question_to_a_service_that_restarts_is_answered(broker: BusWorld) -> None:
    client, server, next_server = await broker.bus(), await broker.bus(), await broker.bus()

    async def answer(message: RequestMessage) -> ReplyMessage:
        return ReplyMessage.of(message, Done())

    await server.serve("svc", answer)
    await server.aclose()
    asking = asyncio.create_task(client.call("svc", request()))
    await asyncio.sleep(0)
    await next_server.serve("svc", answer)
    assert (await asking).error is None


async def test_what_is_no_request_is_dropped_and_the_next_is_answered(broker: BusWorld) -> None:
    client, server = await broker.bus(), await broker.bus()

    async def answer(message: RequestMessage) -> ReplyMessage:
        return ReplyMessage.of(message, Done())

    await server.serve("svc", answer, concurrency=1)
    async with await aio_pika.connect(amqp_url()) as connection:
        exchange = (await connection.channel()).default_exchange
        await exchange.publish(aio_pika.Message(b"no request"), f"{broker.prefix}osmosis.requests.svc")
    assert (await client.call("svc", request())).error is None
