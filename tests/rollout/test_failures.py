"""Failures are not zeros: what goes wrong is replaced, counted and shown, and a group ends all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.common.contracts.rollouts import GroupSampled, RolloutCompleted, RolloutFailed
from libs.common.contracts.trajectories import Group
from libs.common.errors import Invalid, Unavailable
from libs.common.parcels import unpack
from tests.rollout.worlds import World, rollout_world, row, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with rollout_world(tmp_path) as world:
        yield world


async def test_an_overloaded_engine_is_asked_again(world: World) -> None:
    world.engine.statuses += [503, 502]
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 0})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert [one.reward for one in group.trajectories] == [1.0, 1.0]
    assert len(world.engine.requests) == 4


async def test_a_failed_rollout_is_replaced_with_a_fresh_id_in_its_seat(world: World) -> None:
    world.engine.statuses += [422]
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 1})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert [one.sample_index for one in group.trajectories] == [0, 1]
    assert [one.reward for one in group.trajectories] == [1.0, 1.0]
    [failed] = world.facts(RolloutFailed)
    assert "422" in failed.error
    assert failed.rollout_id not in {one.rollout_id for one in group.trajectories}
    listed = {one.id: one.status for one in (await world.rollouts()).items}
    assert sorted(listed.values()) == ["completed", "completed", "failed"]
    detail = await world.rollout(failed.rollout_id)
    assert detail.trajectory is not None and detail.trajectory.messages[0]["role"] == "user"


async def test_a_replacement_samples_with_a_seed_of_its_own(world: World) -> None:
    world.engine.statuses += [422]
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 1})
    await world.sample(world.batch(recipe, [0]))
    assert len({asked["seed"] for asked in world.engine.requests}) == 3


async def test_a_group_goes_on_smaller_once_no_replacement_is_left(world: World) -> None:
    world.engine.statuses += [422, 422, 422]
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 2})
    [group] = await world.sample(world.batch(recipe, [0], n_samples=4))
    assert sorted(one.status for one in group.trajectories) == ["completed"] * 3 + ["failed"]
    assert [one.reward is None for one in group.trajectories] == [
        one.status == "failed" for one in group.trajectories
    ]
    assert len(world.facts(RolloutFailed)) == 3
    assert len(world.facts(RolloutCompleted)) == 3


async def test_what_is_scored_holds_the_failed_ones_too(world: World) -> None:
    world.engine.statuses += [422]
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 0})
    await world.sample(world.batch(recipe, [0]))
    [sampled] = world.facts(GroupSampled)
    group = await unpack(world.platform.blobs, sampled.group, Group)
    assert sorted(one.status for one in group.trajectories) == ["completed", "failed"]


async def test_a_group_of_which_nothing_is_left_is_completed_without_scoring(world: World) -> None:
    world.engine.statuses += [422] * 3
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 1})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert [(one.status, one.reward) for one in group.trajectories] == [("failed", None)] * 2
    assert world.facts(GroupSampled) == [] and world.rewards.sampled == []


async def test_an_engine_that_fails_inside_is_given_up_after_some_tries(world: World) -> None:
    world.engine.statuses += [500] * 3
    recipe = await world.recipe([row(0)], rollout={"max_replacements": 0})
    [group] = await world.sample(world.batch(recipe, [0], n_samples=1))
    assert "failed 3 times inside" in (group.trajectories[0].error or "")


async def test_a_rollout_that_hangs_ends_at_its_deadline(world: World) -> None:
    world.engine.open.clear()
    recipe = await world.recipe([row(0)], rollout={"timeout_s": 0.2, "max_replacements": 1})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert all("did not end within 0.2 s" in (one.error or "") for one in group.trajectories)
    assert len(world.engine.requests) == 3
    assert len(world.facts(RolloutFailed)) == 3


async def test_a_batch_never_waits_longer_than_its_deadline(world: World) -> None:
    world.engine.open.clear()
    recipe = await world.recipe([row(0)], rollout={"timeout_s": 600, "max_replacements": 5})
    groups = await world.sample(world.batch(recipe, [0], deadline_s=0.3))
    assert {one.status for one in groups[0].trajectories} == {"failed"}


async def test_a_tool_server_that_cannot_be_loaded_fails_the_rollout_in_its_authors_words(
    world: World,
) -> None:
    world.rewards.refuses += [Invalid("mcp/main.py: No module named 'numpy'")] * 2
    recipe = await world.recipe([row(0)], has_tools=True, rollout={"max_replacements": 0})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert {one.error for one in group.trajectories} == {"mcp/main.py: No module named 'numpy'"}
    assert world.engine.requests == []


async def test_tools_that_are_away_for_a_moment_cost_a_replacement(world: World) -> None:
    world.rewards.refuses += [Unavailable("no sandbox is free")]
    recipe = await world.recipe([row(0)], has_tools=True, rollout={"max_replacements": 1})
    [group] = await world.sample(world.batch(recipe, [0]))
    assert [one.reward for one in group.trajectories] == [1.0, 1.0]
    await until(lambda: len(world.rewards.closed) == 2, "every session is closed")
