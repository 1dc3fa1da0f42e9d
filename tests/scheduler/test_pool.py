"""From the queue to an attempt and back, with a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import ResumePoint
from libs.common.contracts.work import LeaseGranted, LeaseLost, LeaseReleased
from libs.common.errors import Conflict
from libs.common.identifiers import CheckpointId
from services.scheduler.domain import FIRST_HEARTBEAT, FORGET_NODE, NODE_SILENCE
from services.scheduler.pool import NodeInUse
from services.scheduler.tending import END_GRACE, LAST_WORDS, LAST_WORDS_AFTER_SUCCESS, TERM_GRACE
from tests.scheduler.worlds import ScriptedBackend, World

TTL_S = 30
AFTER_LAST_WORDS_S = LAST_WORDS.total_seconds() + 4


async def test_a_queued_run_gets_a_lease_and_a_process(world: World, backend: ScriptedBackend):
    resume = ResumePoint(
        checkpoint_id=CheckpointId("ckpt_1"), step=4, manifest=BlobRef(key="k", size=1, sha256="1" * 64)
    )
    await world.queue(resume=resume)
    await world.rounds()
    (granted,) = await world.stated(LeaseGranted)
    assert (granted.work_id, granted.epoch, granted.devices) == ("run_1", 1, ["cpu:0"])
    assert granted.resume_from == resume
    assert backend.running == [("run_1", 1)]
    assert await world.waiting() == {}


async def test_rounds_without_news_start_nothing_twice(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds(10)
    assert len(backend.children) == 1
    assert len(await world.stated(LeaseGranted)) == 1


async def test_an_attempt_that_says_it_ended_gives_its_devices_back_once_it_is_gone(
    world: World, backend: ScriptedBackend
):
    await world.queue("run_1")
    await world.rounds()
    await world.queue("run_2")
    await world.say_ended("run_1")
    await world.rounds(1)
    assert backend.running == [("run_1", 1)], "its devices are in use until its process is gone"
    backend.of("run_1").code = 0
    await world.rounds()
    assert [fact.work_id for fact in await world.stated(LeaseReleased)] == ["run_1"]
    assert backend.running == [("run_2", 1)]
    assert await world.stated(LeaseLost) == []


async def test_an_attempt_that_dies_is_lost_with_the_reason(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    backend.of("run_1").code = 137
    await world.rounds(AFTER_LAST_WORDS_S)
    (lost,) = await world.stated(LeaseLost)
    assert (lost.work_id, lost.epoch, lost.reason) == ("run_1", 1, "its process ended with status 137")
    assert await world.states() == {("run_1", 1): "lost"}


async def test_last_words_that_come_after_the_process_is_gone_count(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    backend.of("run_1").code = 1
    await world.rounds(LAST_WORDS.total_seconds() - 1)
    await world.say_ended()
    await world.rounds(20)
    assert await world.states() == {("run_1", 1): "released"}
    assert await world.stated(LeaseLost) == []


async def test_a_process_that_ended_well_is_believed_while_its_last_words_travel(
    world: World, backend: ScriptedBackend
):
    await world.queue()
    await world.rounds()
    backend.of("run_1").code = 0
    await world.rounds(LAST_WORDS_AFTER_SUCCESS.total_seconds())
    assert await world.states() == {("run_1", 1): "held"}
    await world.rounds(8)
    (lost,) = await world.stated(LeaseLost)
    assert "never heard" in lost.reason


async def test_a_next_attempt_has_the_next_epoch(world: World, backend: ScriptedBackend):
    for epoch in (1, 2, 3):
        await world.queue()
        await world.rounds()
        backend.of("run_1", epoch).code = 1
        await world.rounds(AFTER_LAST_WORDS_S)
    assert [granted.epoch for granted in await world.stated(LeaseGranted)] == [1, 2, 3]


async def test_work_queued_again_waits_until_its_last_attempt_is_gone(
    world: World, backend: ScriptedBackend, tmp_path: Path
):
    await world.pool.join(["cpu:0", "cpu:1"])
    await world.queue()
    await world.rounds()
    await world.say_ended()
    await world.queue()
    await world.rounds(2)
    assert await world.waiting() == {"run_1": "its last attempt is ending"}
    backend.of("run_1").code = 0
    await world.rounds()
    assert backend.running == [("run_1", 2)]


async def test_a_cancelled_run_that_waits_is_forgotten(world: World, backend: ScriptedBackend):
    await world.queue("run_1")
    await world.rounds()
    await world.queue("run_2")
    await world.rounds()
    assert "run_2" in await world.waiting()
    await world.cancel("run_2")
    backend.of("run_1").code = 1
    await world.rounds(AFTER_LAST_WORDS_S)
    assert backend.running == []


@pytest.mark.parametrize("ends", ["cancel", "fail"])
async def test_a_run_that_is_over_for_its_owner_is_asked_then_told_then_made_to_end(
    world: World, backend: ScriptedBackend, ends: str
):
    backend.heeds = False
    await world.queue()
    await world.rounds()
    await (world.cancel() if ends == "cancel" else world.fail())
    child = backend.of("run_1")
    await world.rounds(END_GRACE.total_seconds() - 2)
    assert child.signals == [], "it may still end by itself"
    await world.rounds(4)
    assert child.signals == ["TERM"]
    await world.rounds(TERM_GRACE.total_seconds() - 3)
    assert child.signals == ["TERM"], "asked once: a second SIGTERM means something else to many programs"
    await world.rounds(4)
    assert child.signals[:2] == ["TERM", "KILL"]
    assert await world.states() == {("run_1", 1): "released"}
    assert await world.stated(LeaseLost) == []


async def test_a_cancelled_run_whose_process_was_never_started_is_released(
    world: World, backend: ScriptedBackend, tmp_path: Path
):
    waiting = world.another(ScriptedBackend(), tmp_path / "two", trainer_url=None)
    await waiting.join(["cpu:0"])
    await waiting.queue()
    await waiting.rounds(20)
    assert await waiting.states() == {("run_1", 1): "held"}
    await waiting.cancel()
    await waiting.rounds()
    assert await waiting.states() == {("run_1", 1): "released"}


async def test_a_silent_attempt_is_killed_and_lost(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    await world.beat()
    await world.rounds(TTL_S)
    assert await world.stated(LeaseLost) == []
    await world.rounds(2)
    (lost,) = await world.stated(LeaseLost)
    assert lost.reason == "its attempt fell silent"
    assert backend.of("run_1").signals == ["KILL"]


async def test_a_beating_attempt_lives_for_ever(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    for _ in range(4):
        await world.beat()
        await world.rounds(TTL_S - 2)
    assert backend.running == [("run_1", 1)]


async def test_an_attempt_that_never_spoke_has_longer(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    await world.rounds(FIRST_HEARTBEAT.total_seconds() - 4)
    assert backend.running == [("run_1", 1)]
    await world.rounds(8)
    assert await world.states() == {("run_1", 1): "lost"}


async def test_nothing_starts_on_a_device_before_the_old_process_is_dead(
    world: World, backend: ScriptedBackend
):
    await world.queue("run_1")
    await world.rounds()
    child = backend.of("run_1")
    backend.kill = lambda process: backend.children[process].signals.append("KILL")  # type: ignore[method-assign]
    await world.rounds(FIRST_HEARTBEAT.total_seconds() + 2)
    assert await world.states() == {("run_1", 1): "lost"}
    await world.queue("run_2")
    await world.rounds(4)
    assert ("run_2", 1) in await world.states()
    assert backend.running == [("run_1", 1)], "a process in the kernel's hands holds its GPU"
    child.code = -9
    await world.rounds()
    assert backend.running == [("run_2", 1)]


async def test_what_an_attempt_left_behind_holds_its_devices(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    child = backend.of("run_1")
    await world.say_ended()
    child.code, child.left = 0, True
    await world.pool.round()
    assert await world.states() == {("run_1", 1): "releasing"}
    await world.rounds()
    assert await world.states() == {("run_1", 1): "released"}


async def test_a_process_that_cannot_be_started_is_a_lost_lease_with_the_reason(
    world: World, backend: ScriptedBackend
):
    backend.refuses = True
    await world.queue()
    await world.rounds()
    (lost,) = await world.stated(LeaseLost)
    assert lost.reason == "its attempt could not be started: no more processes"


async def test_a_heartbeat_without_a_lease_is_told_to_stop(world: World, backend: ScriptedBackend):
    with pytest.raises(Conflict, match="no longer held"):
        await world.beat()
    await world.queue()
    await world.rounds()
    await world.cancel()
    await world.beat()  # it may finish what it is at: the trainer tells it to cancel
    backend.of("run_1").code = 0
    await world.rounds()
    with pytest.raises(Conflict, match="no longer held"):
        await world.beat()


async def test_an_end_of_an_unknown_or_older_attempt_changes_nothing(world: World, backend: ScriptedBackend):
    await world.say_ended("run_9")
    await world.queue()
    await world.rounds()
    backend.of("run_1").code = 1
    await world.rounds(AFTER_LAST_WORDS_S)
    await world.queue()
    await world.rounds()
    await world.say_ended(epoch=1)
    await world.rounds(20)
    assert backend.running == [("run_1", 2)]
    assert await world.states() == {("run_1", 1): "lost", ("run_1", 2): "held"}


async def test_jobs_and_runs_share_the_pool(world: World, backend: ScriptedBackend):
    await world.queue_job("job_1")
    await world.rounds()
    (granted,) = await world.stated(LeaseGranted)
    assert (granted.work_kind, granted.work_id) == ("job", "job_1")


async def test_a_scheduler_started_anew_kills_what_its_last_life_left_and_loses_its_leases(
    world: World, backend: ScriptedBackend, tmp_path: Path
):
    await world.queue()
    await world.rounds()
    next_life = world.another(backend, tmp_path)
    await next_life.join(["cpu:0"])
    await next_life.rounds(4)
    assert backend.of("run_1").signals == ["KILL"]
    assert await next_life.states() == {("run_1", 1): "held"}, "its devices are taken until it is dead"
    await next_life.rounds(AFTER_LAST_WORDS_S)
    assert backend.of("run_1").signals == ["KILL"]
    (lost,) = await next_life.stated(LeaseLost)
    assert lost.reason == "the scheduler was started anew"


async def test_an_attempt_that_said_its_end_before_a_restart_is_not_lost(
    world: World, backend: ScriptedBackend, tmp_path: Path
):
    await world.queue()
    await world.rounds()
    backend.of("run_1").code = 0
    next_life = world.another(backend, tmp_path)
    await next_life.join(["cpu:0"])
    await next_life.rounds()
    await next_life.say_ended()  # what the trainer had committed is published at the restart
    await next_life.rounds(10)
    assert await next_life.states() == {("run_1", 1): "released"}


async def test_a_node_that_is_not_seen_is_lost_with_its_leases_and_comes_back(
    world: World, backend: ScriptedBackend, tmp_path: Path
):
    other = world.another(ScriptedBackend(), tmp_path / "two", node_name="two")
    await other.join([])
    await world.queue()
    await world.rounds()
    await other.rounds(NODE_SILENCE.total_seconds() + 4)
    assert await other.nodes() == {"one": "lost", "two": "ready"}
    (lost,) = await other.stated(LeaseLost)
    assert lost.reason == "node one is lost"
    assert backend.running == [("run_1", 1)], "nobody could reach it"
    await world.rounds()
    assert backend.of("run_1").signals == ["KILL"], "a stray is killed by its own node"
    assert await other.nodes() == {"one": "ready", "two": "ready"}


async def test_a_renamed_node_is_forgotten_after_a_day(world: World, tmp_path: Path):
    renamed = world.another(ScriptedBackend(), tmp_path / "two", node_name="two")
    await renamed.join(["cpu:0"])
    await renamed.rounds(NODE_SILENCE.total_seconds() + 4)
    assert await renamed.nodes() == {"one": "lost", "two": "ready"}
    world.clock.advance(FORGET_NODE)
    await renamed.rounds(NODE_SILENCE.total_seconds() + 4)
    assert await renamed.nodes() == {"two": "ready"}


async def test_devices_taken_out_of_a_node_are_given_to_nobody(world: World, backend: ScriptedBackend):
    await world.pool.join(["cpu:0", "cpu:1"])
    await world.queue("run_1")
    await world.queue("run_2")
    await world.rounds()
    assert len(backend.running) == 2
    await world.pool.join(["cpu:0"])
    for run in ("run_1", "run_2"):
        await world.say_ended(run)
        backend.of(run).code = 0
    await world.queue("run_3")
    await world.queue("run_4")
    await world.rounds()
    assert len(backend.running) == 1
    assert len(await world.waiting()) == 1


async def test_a_bus_that_is_away_proves_no_attempt_silent(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    await world.beat()
    await world.bus.stop_consuming()
    await world.rounds(10 * TTL_S)
    assert backend.running == [("run_1", 1)]
    await world.bus.start()
    await world.rounds(TTL_S - 2)
    assert backend.running == [("run_1", 1)]
    await world.rounds(4)
    assert backend.running == []


async def test_a_machine_that_slept_gives_attempts_time_to_speak(world: World, backend: ScriptedBackend):
    await world.queue()
    await world.rounds()
    await world.beat()
    world.clock.advance(NODE_SILENCE * 100)
    await world.rounds(2)
    assert backend.running == [("run_1", 1)]
    await world.rounds(TTL_S + 2)
    assert backend.running == []


async def test_a_database_that_is_away_for_a_while_ends_no_attempt(world: World, backend: ScriptedBackend):
    await world.queue()
    loop = asyncio.create_task(world.pool.run())
    await _until(lambda: backend.running == [("run_1", 1)])
    world.database.away = True
    await _until(lambda: world.database.refused > 2)
    world.database.away = False
    await world.cancel()
    backend.of("run_1").code = 0
    await _until_state(world, "released")
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def test_a_stop_ends_what_the_node_started(world: World, backend: ScriptedBackend):
    await world.queue()
    loop = asyncio.create_task(world.pool.run())
    await _until(lambda: backend.running == [("run_1", 1)])
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert backend.of("run_1").signals[0] == "TERM"
    assert backend.running == []


async def test_a_second_scheduler_of_the_same_name_is_told_to_take_another(world: World, tmp_path: Path):
    loop = asyncio.create_task(world.pool.run())
    await _until(lambda: (tmp_path / "run" / "node-one.lock").exists())
    with pytest.raises(NodeInUse, match="OSMOSIS_NODE_NAME"):
        await world.another(ScriptedBackend(), tmp_path).pool.run()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.005)


async def _until_state(world: World, state: str) -> None:
    async with asyncio.timeout(10):
        while set((await world.states()).values()) != {state}:  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.02)
