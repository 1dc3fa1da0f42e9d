"""Curves of a run across its attempts: what is stored, what is forgotten, what is shown to whom."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert

from libs.common.contracts.requests import Caller
from libs.common.errors import NotFound, Unauthenticated
from libs.common.identifiers import WorkspaceId
from services.metrics.tables import PointRow
from tests.metrics.worlds import REWARD, World, at


async def test_points_come_back_by_step_with_titles(world: World):
    await world.create()
    await world.step(2, reward=0.5, **{"train/loss": 1.5})
    await world.step(1, reward=0.25, **{"train/clip_ratio": 0.1})
    answer = await world.query()
    assert [(s.key, s.title) for s in answer.series] == [
        (REWARD, "Training Reward"),
        ("train/clip_ratio", "Train Clip Ratio"),
        ("train/loss", "Loss"),
    ]
    assert [(p.step, p.value, p.at) for p in answer.series[0].points] == [(1, 0.25, at(1)), (2, 0.5, at(2))]


async def test_a_newer_attempt_makes_the_steps_behind_its_checkpoint_again(world: World):
    await world.create()
    await world.start(1)
    for step in range(1, 6):
        await world.step(step, reward=step / 10)
    await world.start(2, from_step=3)
    assert await world.curve() == [(1, 0.1), (2, 0.2), (3, 0.3)]
    await world.step(4, epoch=2, reward=0.9)
    assert await world.curve() == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.9)]


async def test_what_an_older_attempt_says_late_changes_nothing(world: World):
    await world.create()
    await world.start(1)
    await world.start(2)
    await world.step(1, epoch=2, reward=0.7)
    await world.step(1, epoch=1, reward=0.1)
    await world.step(2, epoch=1, reward=0.2)
    await world.start(1)
    assert await world.curve() == [(1, 0.7)]


async def test_a_start_heard_twice_forgets_nothing_of_its_own_attempt(world: World):
    await world.create()
    await world.start(2, from_step=0)
    await world.step(1, epoch=2, reward=0.7)
    await world.start(2, from_step=0)
    assert await world.curve() == [(1, 0.7)]


async def test_a_step_heard_before_its_run_is_kept(world: World):
    await world.step(1, reward=0.5)
    await world.create()
    assert await world.curve() == [(1, 0.5)]


async def test_a_validation_is_a_curve_of_its_own(world: World):
    await world.create()
    await world.step(0, phase="validation", **{"eval/validation/reward": 0.1})
    await world.step(1, reward=0.5)
    assert await world.curve("eval/validation/reward") == [(0, 0.1)]
    assert await world.curve() == [(1, 0.5)]


async def test_a_job_has_no_curves(world: World):
    await world.start(1, run="job_1", kind="job")
    with pytest.raises(NotFound):
        await world.query("job_1")


async def test_ranges_of_steps_and_times(world: World):
    await world.create()
    for step in range(1, 8):
        await world.step(step, reward=step)
    assert await world.curve(from_step=3, to_step=5) == [(3, 3.0), (4, 4.0), (5, 5.0)]
    assert await world.curve(since=at(6)) == [(6, 6.0), (7, 7.0)]
    assert await world.curve(until=at(2)) == [(1, 1.0), (2, 2.0)]
    assert await world.curve("no/such") == []
    assert (await world.query(keys=[])).series == []


async def test_a_run_of_another_workspace_does_not_exist(world: World):
    await world.create()
    stranger = Caller(kind="key", workspace_id=WorkspaceId("ws_2"), key_id="key_2")
    with pytest.raises(NotFound, match="no run run_1"):
        await world.query(caller=stranger)
    with pytest.raises(NotFound):
        await world.query("run_2")
    with pytest.raises(Unauthenticated):
        await world.query(caller=Caller(kind="root"))


async def test_a_hundred_thousand_points_are_answered_within_seconds(world: World):
    await world.create()
    async with world.units.begin() as uow:
        rows = [
            {
                "run_id": "run_1",
                "key": f"train/key_{key}",
                "step": step,
                "epoch": 1,
                "value": step,
                "at": at(step),
            }
            for step in range(1, 10_001)
            for key in range(10)
        ]
        await uow.session.execute(insert(PointRow), rows)
    async with asyncio.timeout(15):
        answer = await world.query(max_points=500)
        one = await world.query(keys=["train/key_3"], from_step=9_990)
    assert [(len(s.points), s.total_points) for s in answer.series] == [(500, 10_000)] * 10
    assert len(one.series[0].points) == 11
