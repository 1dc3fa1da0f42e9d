"""Restarts and fencing: what was under way starts again; an older epoch changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.common.contracts.envelope import Fact
from libs.common.contracts.rollouts import BatchRequested, GroupCompleted, GroupSampled, RolloutFailed
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPaused
from libs.common.contracts.work import AttemptEnded, AttemptStarted, LeaseGranted, LeaseLost
from libs.common.identifiers import LeaseId, NodeId, ProjectId, WorkId
from services.rollout.claims import INTERRUPTED
from tests.rollout.worlds import RUN, WORKSPACE, World, rollout_world, row, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with rollout_world(tmp_path) as world:
        yield world


def attempt_started(epoch: int) -> AttemptStarted:
    return AttemptStarted(workspace_id=WORKSPACE, work_id=WorkId(RUN), work_kind="run", epoch=epoch)


def lease_lost(epoch: int) -> LeaseLost:
    return LeaseLost(
        workspace_id=WORKSPACE,
        lease_id=LeaseId("lease_1"),
        work_id=WorkId(RUN),
        work_kind="run",
        epoch=epoch,
        reason="its process is gone",
    )


async def lease_granted(world: World, epoch: int) -> LeaseGranted:
    return LeaseGranted(
        workspace_id=WORKSPACE,
        lease_id=LeaseId("lease_1"),
        work_id=WorkId(RUN),
        work_kind="run",
        epoch=epoch,
        node_id=NodeId("node_1"),
        devices=["cpu:0"],
        order=await world.platform.blobs.put_bytes("runs/run_1/order.json", b"{}"),
    )


def run_over(kind: str) -> Fact:
    about = {"workspace_id": WORKSPACE, "run_id": RUN, "project_id": ProjectId("prj_1")}
    if kind == "cancelled":
        return RunCancelled(**about)
    return RunPaused(**about) if kind == "paused" else RunFailed(**about, error="out of memory")


async def hanging(world: World, **changes: int) -> BatchRequested:
    """A batch whose chats hang in the engine."""
    world.engine.open.clear()
    batch = world.batch(await world.recipe([row(0)]), [0], **changes)
    await world.state(batch)
    await until(lambda: len(world.engine.requests) >= 2, "the chats hang")
    return batch


async def test_after_a_restart_rollouts_start_again_with_fresh_ids_and_the_same_seeds(tmp_path: Path) -> None:
    async with rollout_world(tmp_path) as world:
        batch = await hanging(world)
        first = world.engine.requests
    port = int(batch.engine_url.rpartition(":")[2])
    async with rollout_world(tmp_path, engine_port=port) as world:
        [group] = await world.groups_of(batch)
        assert {one.status for one in group.trajectories} == {"completed"}
        again = world.engine.requests
        assert sorted(one["seed"] for one in again) == sorted(one["seed"] for one in first)
        interrupted = world.facts(RolloutFailed)
        assert {fact.error for fact in interrupted} == {INTERRUPTED}
        assert {fact.rollout_id for fact in interrupted} == {one["rollout_id"] for one in first}
        assert not {one["rollout_id"] for one in again} & {one["rollout_id"] for one in first}


async def test_a_restart_resumes_groups_that_wait_for_their_rewards(tmp_path: Path) -> None:
    async with rollout_world(tmp_path) as world:
        world.rewards.holds_back = True
        batch = world.batch(await world.recipe([row(0)]), [0])
        await world.state(batch)
        await until(lambda: world.rewards.sampled, "the group is sampled")
        [waiting] = world.rewards.sampled
    async with rollout_world(tmp_path) as world:
        await world.rewards.score(waiting, envelope_id="evt_late")
        [group] = await world.groups_of(batch)
        assert [one.reward for one in group.trajectories] == [1.0, 1.0]
        assert world.engine.requests == []


@pytest.mark.parametrize("how", ["granted", "started", "lost", "ended", "cancelled", "paused", "failed"])
async def test_rollouts_of_an_epoch_that_is_over_are_abandoned(world: World, how: str) -> None:
    batch = await hanging(world)
    ended = AttemptEnded(
        workspace_id=WORKSPACE, work_id=WorkId(RUN), work_kind="run", epoch=1, outcome="failed"
    )
    facts: dict[str, Fact] = {
        "granted": await lease_granted(world, 2),
        "started": attempt_started(2),
        "lost": lease_lost(1),
        "ended": ended,
    }
    await world.state(facts.get(how) or run_over(how))
    listed = (await world.rollouts()).items
    assert {one.status for one in listed} == {"failed"}
    assert all((one.error or "").startswith("abandoned: ") for one in listed)
    world.engine.open.set()
    await world.state(batch.model_copy(update={"batch_id": "batch_late", "groups": batch.groups}))
    assert {one.id for one in (await world.rollouts()).items} == {one.id for one in listed}
    assert world.facts(GroupSampled) == [] and world.facts(GroupCompleted) == []


async def test_a_newer_epoch_samples_while_the_older_one_is_over(world: World) -> None:
    await hanging(world)
    await world.state(attempt_started(2))
    world.engine.open.set()
    recipe = await world.recipe([row(0)])
    [group] = await world.sample(world.batch(recipe, [0], epoch=2))
    assert group.epoch == 2
    assert {fact.epoch for fact in world.facts(GroupCompleted)} == {2}


async def test_an_old_lease_that_is_heard_of_late_changes_nothing(world: World) -> None:
    await world.state(attempt_started(3))
    batch = await hanging(world, epoch=3)
    await world.state(lease_lost(2))
    await world.state(attempt_started(2))
    world.engine.open.set()
    [group] = await world.groups_of(batch)
    assert {one.status for one in group.trajectories} == {"completed"}


async def test_a_resumed_run_samples_again_after_a_pause(world: World) -> None:
    await world.state(attempt_started(1))
    await world.state(run_over("paused"))
    await world.state(await lease_granted(world, 2))
    recipe = await world.recipe([row(0)])
    [group] = await world.sample(world.batch(recipe, [0], epoch=2))
    assert group.epoch == 2


async def test_scores_of_an_abandoned_group_are_ignored(world: World) -> None:
    world.rewards.holds_back = True
    recipe = await world.recipe([row(0)])
    await world.state(world.batch(recipe, [0]))
    await until(lambda: world.rewards.sampled, "the group is sampled")
    await world.state(lease_lost(1))
    await world.rewards.score(world.rewards.sampled[0])
    world.rewards.holds_back = False
    await world.sample(world.batch(recipe, [0], epoch=2))
    assert {fact.epoch for fact in world.facts(GroupCompleted)} == {2}
    listed = [one for one in (await world.rollouts()).items if one.epoch == 1]
    assert {(one.status, one.reward) for one in listed} == {("failed", None)}


async def test_a_batch_waits_for_no_other_one(world: World) -> None:
    slow = await hanging(world)
    quick = world.batch(await world.recipe([row(1)]), [0])
    await world.state(quick)
    await until(lambda: len(world.engine.requests) == 4, "the second batch's chats came too")
    world.engine.open.set()
    await asyncio.gather(world.groups_of(slow), world.groups_of(quick))
