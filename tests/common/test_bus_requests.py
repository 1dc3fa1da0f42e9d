"""What a request may rely on, over both buses."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.contracts.requests import Done, Reply, ReplyMessage, RequestMessage
from libs.common.errors import FieldError, Invalid, NotFound, Unavailable
from tests.support.bus import BusWorld, request, until


class Sum(Reply):
    total: int


async def add(message: RequestMessage) -> ReplyMessage:
    return ReplyMessage.of(message, Sum(total=sum(message.data["numbers"])))


async def test_a_question_is_answered(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()
    await server.serve("svc", add)
    reply = await client.call("svc", request(data={"numbers": [1, 2]}))
    assert reply.open(Sum) == Sum(total=3)


async def test_many_questions_at_once_get_their_own_answers(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()
    await server.serve("svc", add, concurrency=4)
    replies = await asyncio.gather(
        *(client.call("svc", request(data={"numbers": [n, n]})) for n in range(50))
    )
    assert [reply.open(Sum).total for reply in replies] == [2 * n for n in range(50)]


async def test_a_typed_error_arrives_as_itself(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()

    async def refuse(message: RequestMessage) -> ReplyMessage:
        return ReplyMessage.of(
            message, Invalid("not valid", fields=[FieldError("config.steps", "use 1 or more")])
        )

    await server.serve("svc", refuse)
    with pytest.raises(Invalid, match="not valid") as caught:
        (await client.call("svc", request())).open(Done)
    assert caught.value.fields == (FieldError("config.steps", "use 1 or more"),)


async def test_a_typed_error_that_a_handler_raises_is_answered_too(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()

    async def refuse(message: RequestMessage) -> ReplyMessage:
        raise NotFound("no run run_1")

    await server.serve("svc", refuse)
    with pytest.raises(NotFound, match="no run run_1"):
        (await client.call("svc", request())).open(Done)


async def test_a_defect_is_answered_without_its_text_and_the_next_question_as_ever(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()

    async def fail(message: RequestMessage) -> ReplyMessage:
        if not message.data:
            raise KeyError("a secret")
        return await add(message)

    await server.serve("svc", fail)
    with pytest.raises(Unavailable) as caught:
        (await client.call("svc", request("svc.sum"))).open(Done)
    assert "svc.sum" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert (await client.call("svc", request(data={"numbers": [1]}))).open(Sum).total == 1


async def test_no_answer_by_the_deadline_is_unavailable(world: BusWorld) -> None:
    server, client, ended = await world.bus(), await world.bus(), asyncio.Event()

    async def slow(message: RequestMessage) -> ReplyMessage:
        await ended.wait()
        return await add(message)

    await server.serve("svc", slow)
    with pytest.raises(Unavailable, match=r"svc\.slow was not answered within 0\.[12] s"):
        await client.call("svc", request("svc.slow", seconds=0.2))
    ended.set()


async def test_what_nobody_waits_for_any_more_is_not_worked_for(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()
    asked, go_on = list[str](), asyncio.Event()

    async def slow(message: RequestMessage) -> ReplyMessage:
        asked.append(message.name)
        await go_on.wait()
        return ReplyMessage.of(message, Done())

    await server.serve("svc", slow, concurrency=1)
    first = asyncio.create_task(client.call("svc", request("svc.first")))
    await until(lambda: asked)
    with pytest.raises(Unavailable):
        await client.call("svc", request("svc.second", seconds=0.1))
    go_on.set()
    await first
    await client.call("svc", request("svc.third"))
    assert asked == ["svc.first", "svc.third"]


async def test_an_address_that_nobody_serves_is_named(world: BusWorld) -> None:
    client = await world.bus()
    with pytest.raises(Unavailable, match="nobody answers at nobody"):
        await client.call("nobody", request(seconds=0.3))


async def test_no_more_requests_are_at_work_than_the_server_allows(world: BusWorld) -> None:
    server, client = await world.bus(), await world.bus()
    at_work, most = 0, 0

    async def count(message: RequestMessage) -> ReplyMessage:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.005)
        at_work -= 1
        return ReplyMessage.of(message, Done())

    await server.serve("svc", count, concurrency=3)
    await asyncio.gather(*(client.call("svc", request()) for _ in range(12)))
    assert most == 3


async def test_who_gives_up_asking_disturbs_nobody(world: BusWorld) -> None:
    server, client, asked = await world.bus(), await world.bus(), asyncio.Event()
    ended = asyncio.Event()

    async def slow(message: RequestMessage) -> ReplyMessage:
        asked.set()
        await ended.wait()
        return ReplyMessage.of(message, Done())

    await server.serve("svc", slow)
    asking = asyncio.create_task(client.call("svc", request()))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    ended.set()
    assert (await client.call("svc", request())).error is None
