"""The scheduler as other services see it: facts and requests over the bus; and replicas on one database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from libs.common.contracts.requests import Caller
from libs.common.contracts.work import GetQueuePosition, LeaseGranted, LeaseReleased, ListNodes
from libs.common.errors import Unauthenticated
from libs.common.identifiers import WorkId, WorkspaceId
from services.scheduler import handlers
from services.scheduler.tables import QueueRow
from tests.scheduler.worlds import ORDER, START, WORKSPACE, ScriptedBackend, World

OWNER = Caller(kind="key", workspace_id=WORKSPACE, key_id="key_1")
STRANGER = Caller(kind="key", workspace_id=WorkspaceId("ws_2"), key_id="key_2")
OPERATOR = Caller(kind="root")


async def nodes(world: World, caller: Caller):
    async with world.units.begin() as uow:
        return await handlers.list_nodes(ListNodes(), caller, uow)


async def position(world: World, work: str, caller: Caller):
    async with world.units.begin() as uow:
        asked = GetQueuePosition(work_id=WorkId(work))
        return (await handlers.get_queue_position(asked, caller, uow)).entry


async def test_the_pool_is_everybody_s_and_leases_are_their_owner_s(world: World):
    await world.queue("run_1")
    await world.queue("run_2")
    await world.rounds()
    seen = await nodes(world, OWNER)
    assert [(n.name, n.devices, n.free, n.state) for n in seen.nodes] == [("one", ["cpu:0"], [], "ready")]
    assert [lease.work_id for lease in seen.leases] == ["run_1"]
    assert [entry.work_id for entry in seen.queue] == ["run_2"]
    theirs = await nodes(world, STRANGER)
    assert (theirs.leases, theirs.queue) == ([], [])
    assert theirs.nodes == seen.nodes
    assert await nodes(world, OPERATOR) == seen


async def test_a_key_without_a_workspace_sees_no_leases(world: World):
    with pytest.raises(Unauthenticated):
        await nodes(world, Caller(kind="service", name="x"))


async def test_a_place_in_the_queue_is_told_to_the_owner_alone(world: World):
    await world.queue("run_1")
    await world.queue("run_2")
    await world.rounds()
    entry = await position(world, "run_2", OWNER)
    assert entry is not None
    assert (entry.position, entry.reason) == (1, "needs 1 CPU slots on one node; 0 are free")
    assert await position(world, "run_2", STRANGER) is None
    assert await position(world, "run_1", OWNER) is None, "it waits no more"


async def test_replicas_give_no_device_twice(world: World, tmp_path: Path):
    others = [world.another(ScriptedBackend(), tmp_path / str(n), node_name=f"node{n}") for n in range(3)]
    for other in others:
        await other.join(["cpu:0", "cpu:1"])
    for number in range(10):
        await world.queue(f"run_{number}")
    schedulers = [world, *others]
    for _ in range(3):
        await asyncio.gather(*(scheduler.pool.round() for scheduler in schedulers))
    granted = await world.stated(LeaseGranted)
    taken = [(fact.node_id, device) for fact in granted for device in fact.devices]
    assert len(taken) == len(set(taken)) == 7
    assert len({fact.work_id for fact in granted}) == 7
    started = [attempt for s in schedulers for attempt in s.backend.running]  # type: ignore[attr-defined]
    assert sorted(started) == sorted((fact.work_id, fact.epoch) for fact in granted)


async def test_a_run_cancelled_while_it_is_placed_is_either_not_placed_or_released(world: World):
    for number in range(8):
        run = f"run_{number}"
        await world.queue(run)
        await asyncio.gather(world.pool.round(), world.cancel(run))
        await world.rounds()
        for child in world.backend.children.values():  # type: ignore[attr-defined]
            child.code = 0
        await world.rounds()
        assert await world.waiting() == {}
        assert (await world.states()).get((run, 1), "released") == "released"
    granted, released = await world.stated(LeaseGranted), await world.stated(LeaseReleased)
    assert {fact.work_id for fact in granted} == {fact.work_id for fact in released}


async def test_a_queue_of_thousands_is_looked_through_in_a_round(world: World):
    async with world.units.begin() as uow:
        for number in range(3000):
            uow.session.add(
                QueueRow(
                    work_id=f"run_{number:05}",
                    work_kind="run",
                    workspace_id=f"ws_{number % 40}",
                    order=ORDER.model_dump(mode="json"),
                    resources={"gpus": 0, "slots": 1, "priority": 0},
                    resume_from=None,
                    queued_at=START + timedelta(seconds=number),
                    reason="",
                )
            )
    async with asyncio.timeout(20):
        await world.rounds()
    assert len(await world.waiting()) == 2999
