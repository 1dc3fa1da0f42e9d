"""From a batch that is asked for to its completed groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from libs.common.contracts.recipes import SamplingConfig
from libs.common.contracts.rollouts import GroupCompleted, GroupSampled, RolloutCompleted, RolloutFailed
from libs.common.tokens import derive_token
from services.rollout.seeds import seed_of
from tests.rollout.worlds import RUN, World, rollout_world, row
from tests.support.databases import create_postgres_database, drop_postgres_database


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with rollout_world(tmp_path) as world:
        yield world


async def test_every_row_is_sampled_n_times_and_comes_back_scored(world: World) -> None:
    recipe = await world.recipe([row(n) for n in range(5)])
    groups = await world.sample(world.batch(recipe, [3, 0], n_samples=4))
    assert [group.row_index for group in groups] == [3, 0]
    for group in groups:
        assert [one.sample_index for one in group.trajectories] == [0, 1, 2, 3]
        for one in group.trajectories:
            assert one.status == "completed" and one.reward == 1.0 and one.finish_reason == "stop"
            assert one.ground_truth == str(group.row_index + 1)
            assert one.metadata == {"level": group.row_index}
            assert [message["role"] for message in one.messages] == ["user", "assistant"]


async def test_the_trained_tokens_are_those_that_the_engine_sampled(world: World) -> None:
    recipe = await world.recipe([row(0)])
    [group] = await world.sample(world.batch(recipe, [0], n_samples=3))
    for one in group.trajectories:
        [branch] = one.branches
        [span] = branch.sampled
        assert branch.token_ids[span.start : span.stop] == world.engine.answers[one.rollout_id]
        asked = next(r for r in world.engine.requests if r["rollout_id"] == one.rollout_id)
        assert branch.token_ids[: span.start] == asked["prompt_ids"]
        assert span.logprobs == [-0.5] * len(span.logprobs)
        assert span.version == 3


async def test_the_engine_is_asked_with_the_batchs_settings_and_the_attempts_token(world: World) -> None:
    recipe = await world.recipe([row(0)])
    sampling = SamplingConfig(temperature=0.7, top_p=0.9, top_k=5, max_response_length=9, stop=["\n\n"])
    [group] = await world.sample(world.batch(recipe, [0], n_samples=1, sampling=sampling, epoch=4))
    [asked] = world.engine.requests
    settings = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "max_tokens": 9, "stop": ["\n\n"]}
    assert {name: asked[name] for name in settings} == settings
    assert asked["stop_token_ids"] == [258]
    assert group.trajectories[0].branches[0].sampled[0].temperature == 0.7
    secret = world.platform.settings.deployment_secret
    assert world.engine.tokens == [f"Bearer {derive_token(secret, 'engine', RUN, 4)}"]


async def test_seeds_follow_from_batch_row_sample_and_turn_alone(world: World) -> None:
    recipe = await world.recipe([row(n) for n in range(2)])
    first = await world.sample(world.batch(recipe, [0, 1]))
    seeds = sorted(asked["seed"] for asked in world.engine.requests)
    assert seeds == sorted(seed_of(11, r, s, 0) for r in (0, 1) for s in (0, 1))
    again = await world.sample(world.batch(recipe, [0, 1]))
    assert [said(group) for group in first] == [said(group) for group in again]


async def test_a_validation_takes_its_rows_from_the_validation_dataset(world: World) -> None:
    recipe = await world.recipe([row(0)], validation=[row(7, system_prompt="Be brief.")])
    [group] = await world.sample(world.batch(recipe, [0], phase="validation"))
    assert group.trajectories[0].messages[:2] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 7 + 1?"},
    ]
    assert {one.phase for one in world.facts(RolloutCompleted)} == {"validation"}


async def test_a_batch_that_is_asked_for_twice_is_sampled_once(world: World) -> None:
    recipe = await world.recipe([row(0)])
    batch = world.batch(recipe, [0])
    await world.sample(batch)
    await world.state(batch)
    await world.sample(world.batch(recipe, [0]))
    assert len(world.engine.requests) == 4
    assert len([fact for fact in world.facts(GroupCompleted) if fact.batch_id == batch.batch_id]) == 1


async def test_scores_that_come_twice_complete_a_group_once(world: World) -> None:
    recipe = await world.recipe([row(0)])
    await world.sample(world.batch(recipe, [0]))
    await world.rewards.score(world.rewards.sampled[0], envelope_id="evt_again")
    await world.sample(world.batch(recipe, [0]))
    assert len(world.facts(GroupCompleted)) == 2
    assert len(world.facts(RolloutCompleted)) == 4


async def test_a_rollout_that_was_not_scored_is_completed_without_a_reward(world: World) -> None:
    world.rewards.judge = lambda trajectory: None if trajectory.sample_index else 0.5
    recipe = await world.recipe([row(0)])
    [group] = await world.sample(world.batch(recipe, [0]))
    assert [one.reward for one in group.trajectories] == [0.5, None]
    facts = {fact.sample_index: fact for fact in world.facts(RolloutCompleted)}
    assert facts[0].error is None and facts[0].reward == 0.5 and facts[0].turns == 1
    assert facts[1].reward is None
    assert facts[1].error == "compute_reward.reward: ValueError: no number in the answer"


async def test_a_row_that_is_not_there_fails_its_group_alone(world: World) -> None:
    recipe = await world.recipe([row(0)])
    missing, good = await world.sample(world.batch(recipe, [5, 0]))
    assert {one.status for one in good.trajectories} == {"completed"}
    assert {one.error for one in missing.trajectories} == {"dataset ds_1 has 1 rows and no row 5"}
    assert [one.reward for one in missing.trajectories] == [None, None]


async def test_a_model_without_a_chat_template_fails_the_batch_with_a_reason(world: World) -> None:
    recipe = await world.recipe([row(0)], template="")
    [group] = await world.sample(world.batch(recipe, [0]))
    assert "no chat template" in (group.trajectories[0].error or "")
    assert len(world.facts(RolloutFailed)) == 2
    assert world.facts(GroupSampled) == []


async def test_a_prompt_that_leaves_no_room_fails_and_says_so(world: World) -> None:
    recipe = await world.recipe([row(0)], context_length=20)
    [group] = await world.sample(world.batch(recipe, [0]))
    assert "context holds 20" in (group.trajectories[0].error or "")
    assert world.engine.requests == []


async def test_a_large_group_travels_through_the_blob_store(world: World) -> None:
    recipe = await world.recipe([row(0, notes="x" * 40_000)])
    batch = world.batch(recipe, [0])
    [group] = await world.sample(batch)
    [fact] = world.facts(GroupCompleted)
    assert fact.group.inline is None and fact.group.blob is not None
    detail = await world.rollout(group.trajectories[1].rollout_id)
    assert detail.trajectory == group.trajectories[1]


async def test_the_same_comes_out_over_postgresql(tmp_path: Path) -> None:
    url = await asyncio.to_thread(create_postgres_database)
    try:
        async with rollout_world(tmp_path, database_url=url) as world:
            world.engine.statuses += [422]
            recipe = await world.recipe([row(n) for n in range(3)], rollout={"max_replacements": 1})
            groups = await world.sample(world.batch(recipe, [2, 0], n_samples=4))
            assert [one.reward for group in groups for one in group.trajectories] == [1.0] * 8
            listed = (await world.rollouts()).items
            assert sorted(one.status for one in listed) == ["completed"] * 8 + ["failed"]
    finally:
        await asyncio.to_thread(drop_postgres_database, url)


def said(group: Any) -> list[str]:
    return [one.messages[-1]["content"] for one in group.trajectories]
