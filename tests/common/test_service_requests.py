"""Questions and commands over the bus: typed errors, one effect an idempotency key, deadlines, and dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from libs.common.contracts.dead_letters import DeadLetterPage, ListDeadLetters, ReplayDeadLetter
from libs.common.contracts.requests import Caller, RequestMessage
from libs.common.contracts.work import JobCancelled
from libs.common.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    OsmosisError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from libs.common.identifiers import WorkspaceId
from tests.common.notes import (
    OPERATOR,
    OWNER,
    ReadNote,
    UnheardOf,
    Uow,
    World,
    WriteNote,
    eventually,
    notes_world,
)


@pytest.fixture(params=["embedded", "distributed"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, notes_url: str) -> AsyncIterator[World]:
    async with notes_world(request.param, tmp_path, notes_url) as made:
        async with made.life():
            yield made


async def write(world: World, text: str, key: str | None = None, caller: Caller = OWNER) -> int:
    reply = await world.platform.ask(WriteNote(text=text), caller, idempotency_key=key, timeout_s=10)
    assert reply.text == text
    return reply.number


@pytest.mark.parametrize(
    "kind", [NotFound, Conflict, Forbidden, Unauthenticated, Invalid, TooLarge, Unavailable]
)
async def test_an_error_arrives_as_what_it_was(world: World, kind: type[OsmosisError]):
    async def fail(request: WriteNote, uow: Uow) -> None:
        raise kind("what, where, what to do", fields=[FieldError("config.x", "is too small")])

    world.on_write = fail
    with pytest.raises(kind) as caught:
        await write(world, "hello")
    assert caught.value.message == "what, where, what to do"
    assert caught.value.fields == (FieldError("config.x", "is too small"),)
    assert await world.notes() == [], "a command that fails leaves nothing"


async def test_a_defect_is_unavailable_without_its_text(world: World):
    async def fail(request: WriteNote, uow: Uow) -> None:
        raise KeyError("a secret of the implementation")

    world.on_write = fail
    with pytest.raises(Unavailable) as caught:
        await write(world, "hello")
    assert "secret" not in caught.value.message
    assert "notes.write failed inside the notes service" in caught.value.message


async def test_a_request_that_nobody_knows_is_answered_at_once(world: World):
    begun = time.monotonic()
    with pytest.raises(Unavailable, match=r"does not answer notes\.unheard_of"):
        await world.platform.ask(UnheardOf(), OWNER, timeout_s=10)
    assert time.monotonic() - begun < 5


async def test_a_request_that_is_not_valid_names_its_fields(world: World):
    message = RequestMessage(
        id="req_1",
        name="notes.write",
        caller=OWNER,
        deadline=world.platform.clock.now() + timedelta(seconds=10),
        data={"text": 7},
    )
    reply = await world.platform.bus.call("notes", message)
    assert reply.error is not None
    assert reply.error["code"] == "invalid"
    assert [fault["path"] for fault in reply.error["fields"]] == ["text"]


async def test_a_request_of_a_newer_peer_with_unknown_fields_is_answered(world: World):
    newer = ReadNote.model_construct(_fields_set={"text", "tone"}, text="x", tone="loud")  # type: ignore[call-arg]
    assert (await world.platform.ask(newer, OWNER)).text == "x"


async def test_an_answer_that_comes_too_late_is_unavailable(world: World):
    async def wait(request: WriteNote, uow: Uow) -> None:
        await asyncio.sleep(1)

    world.on_write = wait
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="not answered within"):
        await world.platform.ask(WriteNote(text="x"), OWNER, timeout_s=0.3)
    assert time.monotonic() - begun < 0.95


async def test_a_replica_can_be_asked_by_its_own_address(world: World):
    reply = await world.platform.ask(ReadNote(text="you"), OWNER, to=world.service.address)
    assert reply.text == "you"


async def test_a_command_sent_again_with_its_key_has_its_first_answer_and_one_effect(world: World):
    assert await write(world, "a", "key-1") == await write(world, "a", "key-1")
    assert await world.notes() == [("request", "a")]


async def test_a_command_sent_again_at_the_same_moment_has_its_first_answer_and_one_effect(world: World):
    async def take_a_moment(request: WriteNote, uow: Uow) -> None:
        await asyncio.sleep(0.05)

    world.on_write = take_a_moment
    numbers = await asyncio.gather(*(write(world, "a", "key-1") for _ in range(6)))
    assert len(set(numbers)) == 1
    assert await world.notes() == [("request", "a")]


async def test_a_key_used_for_another_command_is_a_conflict(world: World):
    await write(world, "a", "key-1")
    with pytest.raises(Conflict, match="key-1"):
        await write(world, "b", "key-1")


async def test_a_key_is_its_workspace_s_own(world: World):
    other = Caller(kind="key", workspace_id=WorkspaceId("ws_2"), key_id="key_2")
    assert await write(world, "a", "key-1") != await write(world, "a", "key-1", caller=other)


async def test_a_command_that_failed_may_be_tried_again_with_its_key(world: World):
    failures = [Conflict("not now")]

    async def fail(request: WriteNote, uow: Uow) -> None:
        if failures:
            raise failures.pop()

    world.on_write = fail
    with pytest.raises(Conflict):
        await write(world, "a", "key-1")
    assert await write(world, "a", "key-1")


async def test_a_command_without_a_key_and_a_question_with_one_are_carried_out_each_time(world: World):
    await write(world, "a")
    await write(world, "a")
    for expected in (2, 3):
        reply = await world.platform.ask(ReadNote(), OWNER, idempotency_key="key-1")
        assert reply.number == expected
        if expected == 2:
            await write(world, "a")


async def dead_letters(world: World, **page: object) -> DeadLetterPage:
    return await world.platform.ask(ListDeadLetters(**page), OPERATOR, to="notes")  # type: ignore[arg-type]


async def test_a_fact_that_cannot_be_handled_is_kept_shown_and_handled_again(world: World):
    broken = True

    async def fail(fact: JobCancelled, uow: Uow) -> None:
        if broken:
            raise ValueError(f"no room for {fact.job_id}")

    world.on_job = fail
    envelope = await world.cancel_job()
    await eventually(lambda: _letters(world))
    (letter,) = (await dead_letters(world)).items
    assert (letter.service, letter.queue, letter.subject) == ("notes", "notes.facts", "job_1")
    assert (letter.type, letter.attempts) == ("osmosis.job.cancelled.v1", 3)
    assert letter.error == "ValueError: no room for job_1"
    assert letter.envelope == envelope.model_dump(mode="json")
    replay = ReplayDeadLetter(dead_letter_id=letter.id)
    with pytest.raises(Conflict, match="no room for job_1"):
        await world.platform.ask(replay, OPERATOR, to="notes")
    assert len((await dead_letters(world)).items) == 1, "it is kept until it is handled"
    broken = False
    await world.platform.ask(replay, OPERATOR, to="notes")
    assert (await dead_letters(world)).items == []
    assert await world.told(1) == ["job_1"]
    with pytest.raises(NotFound):
        await world.platform.ask(replay, OPERATOR, to="notes")


async def test_dead_letters_are_shown_page_by_page_newest_first(world: World):
    async def fail(fact: JobCancelled, uow: Uow) -> None:
        raise ValueError("never")

    world.on_job = fail
    for number in range(5):
        await world.cancel_job(f"job_{number}")
        await eventually(lambda number=number: _letters(world, number + 1))
    subjects: list[str] = []
    page = await dead_letters(world, limit=2)
    while True:
        subjects += [letter.subject for letter in page.items]
        if page.next_cursor is None:
            break
        page = await dead_letters(world, limit=2, cursor=page.next_cursor)
    assert subjects == [f"job_{number}" for number in (4, 3, 2, 1, 0)]
    with pytest.raises(Invalid, match="next_cursor"):
        await dead_letters(world, cursor="yesterday")


async def test_dead_letters_are_the_operator_s(world: World):
    for request in (ListDeadLetters(), ReplayDeadLetter(dead_letter_id="x")):
        with pytest.raises(Forbidden, match="root key"):
            await world.platform.ask(request, OWNER, to="notes")


async def _letters(world: World, number: int = 1) -> bool:
    return len((await dead_letters(world)).items) == number
