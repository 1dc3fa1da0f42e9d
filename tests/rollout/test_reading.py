"""Rollouts as their users read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.common.contracts.requests import Caller
from libs.common.errors import NotFound, Unauthenticated
from tests.rollout.worlds import RUN, STRANGER, World, rollout_world, row, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with rollout_world(tmp_path) as world:
        yield world


async def test_lists_are_newest_first_and_go_on_behind_the_cursor(world: World) -> None:
    recipe = await world.recipe([row(0)])
    for step in (1, 2, 3):
        await world.sample(world.batch(recipe, [0], step=step))
    first = await world.rollouts(limit=4)
    second = await world.rollouts(limit=4, cursor=first.next_cursor)
    assert [one.step for one in first.items] == [3, 3, 2, 2]
    assert [one.step for one in second.items] == [1, 1] and second.next_cursor is None
    assert {one.step for one in (await world.rollouts(step=2)).items} == {2}
    assert (await world.rollouts(status="failed", cursor="z")).items == []


async def test_a_rollout_shows_every_token_and_what_each_reward_function_said(world: World) -> None:
    recipe = await world.recipe([row(0)])
    [group] = await world.sample(world.batch(recipe, [0]))
    expected = group.trajectories[0]
    detail = await world.rollout(expected.rollout_id)
    assert detail.trajectory == expected
    assert detail.trajectory.components[0].value == 1.0
    view = detail.rollout
    assert (view.status, view.reward, view.turns, view.finish_reason) == ("completed", 1.0, 1, "stop")
    assert view.tokens == len(world.engine.answers[expected.rollout_id])
    assert view.ended_at is not None and view.ended_at >= view.created_at


async def test_a_rollout_under_way_is_listed_as_running_without_a_trajectory(world: World) -> None:
    world.engine.open.clear()
    await world.state(world.batch(await world.recipe([row(0)]), [0], n_samples=1))
    await until(lambda: world.engine.requests, "the chat is under way")
    [view] = (await world.rollouts()).items
    assert view.status == "running"
    assert (await world.rollout(view.id)).trajectory is None


async def test_another_workspace_sees_nothing(world: World) -> None:
    [group] = await world.sample(world.batch(await world.recipe([row(0)]), [0]))
    with pytest.raises(NotFound):
        await world.rollout(group.trajectories[0].rollout_id, STRANGER)
    with pytest.raises(NotFound):
        await world.rollouts(STRANGER)
    assert world.asked_registry == [RUN]


async def test_an_unknown_rollout_is_not_found_and_a_caller_without_a_workspace_is_refused(
    world: World,
) -> None:
    with pytest.raises(NotFound):
        await world.rollout("rollout_unknown")
    with pytest.raises(Unauthenticated):
        await world.rollouts(Caller(kind="root"))
