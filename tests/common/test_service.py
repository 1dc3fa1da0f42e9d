"""What the runtime promises a service about facts, whichever bus and database carry it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.common.consuming import Work
from libs.common.contracts.runs import RunCancelled
from libs.common.contracts.work import JobCancelled, LeaseReleased
from libs.common.identifiers import ProjectId, RunId
from tests.common.notes import WORKSPACE, Notes, Uow, World, eventually, notes_world


@pytest.fixture(params=["embedded", "distributed"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, notes_url: str) -> AsyncIterator[World]:
    async with notes_world(request.param, tmp_path, notes_url) as made:
        yield made


async def test_a_fact_delivered_twice_has_one_effect(world: World):
    async with world.life():
        first = await world.cancel_job("job_1")
        await world.state(first)
        await world.cancel_job("job_2")
        await world.told(2)
        assert await world.notes() == [("job_1", "cancelled"), ("job_2", "cancelled")]
        assert [envelope.subject for envelope in world.heard] == ["job_1", "job_2"]


async def test_effect_and_facts_of_a_handler_that_fails_are_undone_and_tried_again(world: World):
    failures = [ValueError("once"), ValueError("twice")]

    async def fail(fact: JobCancelled, uow: Uow) -> None:
        if failures:
            raise failures.pop()

    world.on_job = fail
    async with world.life():
        await world.cancel_job()
        assert await world.told(1) == ["job_1"]
        assert await world.notes() == [("job_1", "cancelled")]


async def test_a_fact_keeps_its_order_and_a_failing_one_holds_back_its_subject_alone(world: World):
    failures = [ValueError("once")]

    async def fail(fact: JobCancelled, uow: Uow) -> None:
        if fact.job_id == "job_1" and failures:
            raise failures.pop()

    world.on_job = fail
    async with world.life():
        await asyncio.gather(*[world.cancel_job("job_1") for _ in range(3)], world.cancel_job("job_2"))
        assert sorted(await world.told(4)) == ["job_1", "job_1", "job_1", "job_2"]


async def test_what_was_committed_before_a_crash_is_published_by_the_next_life(world: World):
    async with world.life():
        pass
    # A process that is killed between its commit and the publication leaves this behind.
    killed = world.build(world.platform)
    async with killed.units.begin() as uow:
        uow.emit(RunCancelled(workspace_id=WORKSPACE, run_id=RunId("run_9"), project_id=ProjectId("prj")))
    await killed.aclose()
    assert world.heard == []
    async with world.life():
        assert await world.told(1) == ["run_9"]


async def test_long_work_is_recorded_when_it_finishes_and_not_done_again(world: World):
    runs: list[int] = []

    async def work_on(fact: LeaseReleased, work: Work[Notes]) -> None:
        runs.append(work.delivery)
        if len(runs) < 3:
            raise ValueError("not yet")
        async with work.finish() as uow:
            await uow.store.add(fact.work_id, "released")

    world.on_lease = work_on
    async with world.life():
        envelope = await world.release_lease()
        await eventually(world.notes)
        assert runs == [1, 2, 3]
        await world.state(envelope)
        await world.release_lease("run_2")
        await eventually(lambda: _count(world, 2))
        assert await world.notes() == [("run_1", "released"), ("run_2", "released")]


async def test_long_work_that_ends_without_a_last_word_is_recorded_too(world: World):
    runs: list[str] = []

    async def work_on(fact: LeaseReleased, work: Work[Notes]) -> None:
        runs.append(fact.work_id)
        async with work.unit_of_work() as uow:
            await uow.store.add(fact.work_id, "on the way")

    world.on_lease = work_on
    async with world.life():
        envelope = await world.release_lease("run_1")
        await eventually(world.notes)
        await world.state(envelope)
        await world.release_lease("run_2")
        await eventually(lambda: _count(world, 2))
        assert runs == ["run_1", "run_2"]


async def test_of_two_who_finish_the_same_work_one_has_an_effect(world: World):
    both = asyncio.Barrier(2)

    async def work_on(fact: LeaseReleased, work: Work[Notes]) -> None:
        if fact.work_id != "run_1":
            return
        await both.wait()
        async with work.finish() as uow:
            await uow.store.add(fact.work_id, "released")

    world.on_lease = work_on
    async with world.life() as service:
        envelope = await world.release_lease("run_2")
        fact = envelope.fact()
        assert isinstance(fact, LeaseReleased)
        twice = world.envelope(fact.model_copy(update={"work_id": "run_1"}))
        queue = f"notes.work.{LeaseReleased.KEY}"
        # Two replicas, each with a delivery of the same fact: the broker gave one up for lost.
        await asyncio.gather(*(service.replay(queue, twice) for _ in range(2)))
        assert await world.notes() == [("run_1", "released")]


async def test_a_fact_of_a_newer_peer_with_unknown_fields_is_heard(world: World):
    async with world.life():
        envelope = world.envelope(JobCancelled.model_validate({"workspace_id": "ws_1", "job_id": "job_1"}))
        newer = envelope.model_copy(update={"data": {**envelope.data, "colour": "green"}})
        await world.state(newer)
        assert await world.told(1) == ["job_1"]


async def test_a_loop_survives_a_peer_that_is_away_for_a_moment(world: World):
    begun: list[int] = []
    running = asyncio.Event()

    async def loop() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ConnectionRefusedError("the database restarts")
        running.set()
        await asyncio.Event().wait()

    world.backgrounds = [loop]
    async with world.life():
        async with asyncio.timeout(10):
            await running.wait()
        await world.cancel_job()
        assert await world.told(1) == ["job_1"]


async def _count(world: World, number: int) -> bool:
    return len(await world.notes()) == number
