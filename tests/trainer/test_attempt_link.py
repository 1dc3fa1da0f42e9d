"""The attempt's calls when the trainer service is away, slow, or says stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest

from libs.common.contracts.attempts import Directive, Hello, Started
from libs.common.contracts.recipes import TrainOrder
from libs.common.errors import Conflict, NotFound, OsmosisError, Unauthenticated
from services.trainer.attempt.control import Control, Told, beat
from services.trainer.attempt.link import Fenced, Link, Unreachable
from tests.trainer.worlds import recipe

Answer = httpx.Response | Exception


def refused(error: OsmosisError) -> httpx.Response:
    return httpx.Response(error.status, json=error.to_wire())


def answering(answers: Iterator[Answer]) -> tuple[Link, list[str]]:
    """A link to a service that gives these answers, and the paths that were called."""
    called: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        called.append(request.url.path)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    link = Link("http://trainer", "run_1", 3, "secret", transport=httpx.MockTransport(handle))
    link.patience_s = 0.5
    return link, called


def directive(word: str) -> httpx.Response:
    return httpx.Response(200, json={"directive": word})


def forever(make: Callable[[], Answer]) -> Iterator[Answer]:
    while True:
        yield make()


async def test_a_call_is_tried_again_until_the_service_is_back() -> None:
    away = [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.Response(500, text="down")]
    link, called = answering(iter([*away, httpx.Response(200, json={})]))
    await link.started(Started())
    assert called == ["/attempts/run_1/3/started"] * 4


async def test_hello_waits_for_the_lease_and_takes_over_its_patience() -> None:
    hello = Hello(order=TrainOrder(recipe=recipe("run_1")), lease_ttl_s=7)
    answers = [refused(NotFound("not yet")), httpx.Response(200, text=hello.model_dump_json())]
    link, _ = answering(iter(answers))
    assert await link.hello() == hello
    assert link.patience_s == 7


async def test_patience_ends() -> None:
    link, called = answering(forever(lambda: httpx.ConnectError("refused")))
    with pytest.raises(Unreachable, match="started"):
        await link.started(Started())
    assert len(called) > 1


async def test_a_fenced_attempt_asks_no_second_time() -> None:
    link, called = answering(iter([refused(Conflict("epoch 4 was granted"))]))
    with pytest.raises(Fenced, match="epoch 4"):
        await link.started(Started())
    assert len(called) == 1


async def test_a_wrong_token_is_no_reason_to_try_again() -> None:
    link, called = answering(iter([refused(Unauthenticated("no"))]))
    with pytest.raises(Unauthenticated):
        await link.started(Started())
    assert len(called) == 1


async def test_no_error_holds_the_token() -> None:
    link, _ = answering(forever(lambda: httpx.ConnectError("refused")))
    with pytest.raises(Unreachable) as caught:
        await link.started(Started())
    assert "secret" not in str(caught.value) + repr(caught.value)


async def test_heartbeats_bring_directives_and_outlive_lost_answers() -> None:
    answers = [directive("go"), httpx.ConnectError("refused"), directive("pause"), refused(Conflict("over"))]
    link, _ = answering(iter(answers))
    control = Control()
    control.check()
    with pytest.raises(Fenced):
        await beat(link, control, 0.001)
    assert control.directive == "pause"


async def test_heartbeats_give_up_when_a_lease_would_be_lost() -> None:
    link, called = answering(forever(lambda: httpx.ConnectError("refused")))
    link.patience_s = 0.05
    async with asyncio.timeout(10):
        with pytest.raises(Unreachable):
            await beat(link, Control(), 0.001)
    assert len(called) > 1


def test_what_was_told_stays_told_and_an_end_outdoes_it() -> None:
    control = Control()
    for word in ("pause", "cancel", "pause", "go"):
        control.tell(Directive.model_validate({"directive": word}).directive)
    with pytest.raises(Told) as told:
        control.check()
    assert told.value.directive == "cancel"
    control.fence()
    with pytest.raises(Fenced):
        control.check()
