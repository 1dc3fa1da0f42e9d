"""A training attempt from hello to its end, against the real trainer service and a scripted broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.common.blobs.folders import read_manifest
from libs.common.contracts.recipes import TrainOrder
from libs.common.contracts.rollouts import BatchRequested
from libs.common.contracts.runs import RunCancelled, RunPausing
from libs.common.contracts.work import AttemptEnded, AttemptStarted, AttemptStepped, CheckpointSaved
from libs.common.identifiers import ProjectId, RunId
from services.trainer.attempt.running import Exit
from tests.trainer.brokers import Broker, asked, attempt, newest_checkpoint, tiny_recipe
from tests.trainer.worlds import WORKSPACE, World, trainer_world, until

RUN = "run_1"
RUN_FACT = {"workspace_id": WORKSPACE, "run_id": RunId(RUN), "project_id": ProjectId("prj_test")}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with trainer_world(tmp_path, lease_ttl_s=10) as world:
        yield world


@pytest.fixture
async def broker(world: World) -> Broker:
    broker = Broker(world)
    await broker.listen()
    return broker


async def ended(world: World, count: int = 1) -> AttemptEnded:
    await until(lambda: len(world.facts(AttemptEnded)) == count, "the end")
    return world.facts(AttemptEnded)[-1]


async def weights(world: World, saved: CheckpointSaved) -> dict[str, str]:
    """Digests of a checkpoint's tensors."""
    manifest = await read_manifest(world.platform.blobs, saved.manifest)
    return {f.path: f.blob.sha256 for f in manifest.files if f.path.endswith(".safetensors")}


async def test_a_run_of_three_steps_reports_validates_and_saves(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    validation = {"share": 0.34, "interval": 2, "n_samples": 1}
    recipe = await tiny_recipe(world, tmp_path, RUN, validation=validation, checkpoints={"interval": 2})
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.DONE

    end = await ended(world)
    assert (end.outcome, end.step, end.error) == ("completed", 3, None)
    (started,) = world.facts(AttemptStarted)
    assert (started.total_steps, started.from_step) == (3, 0)
    steps = world.facts(AttemptStepped)
    assert [(s.phase, s.step) for s in steps] == [
        ("validation", 0),
        ("train", 1),
        ("train", 2),
        ("validation", 2),
        ("train", 3),
        ("validation", 3),
    ]
    for step in steps:
        if step.phase == "train":
            assert step.metrics["rollout/scored"] == 8
            assert {
                "rollout/raw_reward",
                "train/loss",
                "time/step_s",
                "time/rollout_s",
            } <= step.metrics.keys()
        else:
            assert 0 <= step.metrics["eval/validation/reward"] <= 1
            assert step.metrics["eval/validation/count"] == 2
    assert [saved.step for saved in world.facts(CheckpointSaved)] == [2, 3]
    for saved in world.facts(CheckpointSaved):
        manifest = await read_manifest(world.platform.blobs, saved.manifest)
        assert manifest.attributes["step"] == saved.step
        assert saved.size == sum(file.blob.size for file in manifest.files)
    held_out = {row for batch in broker.batches if batch.phase == "validation" for row in asked(batch)}
    trained = {row for batch in broker.batches if batch.phase == "train" for row in asked(batch)}
    assert held_out and trained and not held_out & trained
    assert {batch.sampling.temperature for batch in broker.batches if batch.phase == "validation"} == {0.0}
    assert broker.versions == {
        "validation:0": {0},
        "train:1": {0},
        "train:2": {1},
        "validation:2": {2},
        "train:3": {2},
        "validation:3": {3},
    }
    assert not list((tmp_path / "scratch" / RUN).iterdir())


async def test_pause_and_resume_give_the_run_that_was_never_paused(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    for run in ("run_straight", RUN):
        training = {"max_steps": 4, "lora": {"rank": 4, "dropout": 0.1}}
        recipe = await tiny_recipe(world, tmp_path, run, training=training)
        await world.grant(run, TrainOrder(recipe=recipe))
    assert await attempt(world, "run_straight", 1) is Exit.DONE
    assert (await ended(world)).outcome == "completed"

    async def pause_in_step_3(batch: BatchRequested) -> bool:
        if batch.step == 3:
            await world.state(RunPausing(**RUN_FACT, epoch=1))
        return batch.step != 3

    broker.on_batch = pause_in_step_3
    assert await attempt(world, RUN, 1) is Exit.DONE
    paused = await ended(world, 2)
    assert (paused.outcome, paused.step) == ("paused", 2)
    broker.on_batch = lambda _: None
    point = newest_checkpoint(world, RUN)
    assert point.step == 2
    await world.grant(RUN, TrainOrder(recipe=recipe), resume_from=point)
    assert await attempt(world, RUN, 2) is Exit.DONE
    assert ((await ended(world, 3)).outcome, world.facts(AttemptStarted)[-1].from_step) == ("completed", 2)

    rewards: dict[str, list[float]] = {"run_straight": [], RUN: []}
    for step in world.facts(AttemptStepped):
        rewards[step.work_id].append(step.metrics["rollout/raw_reward"])
    assert rewards[RUN] == rewards["run_straight"]
    last = {saved.run_id: saved for saved in world.facts(CheckpointSaved)}
    assert await weights(world, last[RunId(RUN)]) == await weights(world, last[RunId("run_straight")])


async def test_a_cancelled_run_stops_without_a_checkpoint(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    async def cancel(batch: BatchRequested) -> bool:
        if batch.step == 2:
            await world.state(RunCancelled(**RUN_FACT))
        return batch.step != 2

    broker.on_batch = cancel
    recipe = await tiny_recipe(world, tmp_path, RUN)
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.DONE
    end = await ended(world)
    assert (end.outcome, end.step) == ("cancelled", 1)
    assert world.facts(CheckpointSaved) == []


async def test_a_first_batch_without_a_reward_fails_the_run_with_the_errors(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    broker.judge = lambda _group, sample, _tokens: None if sample == 0 else "ZeroDivisionError: line 3"
    recipe = await tiny_recipe(world, tmp_path, RUN)
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.FAILED
    end = await ended(world)
    assert end.outcome == "failed"
    assert end.error is not None
    assert end.error.startswith("no sample of the first batch got a reward")
    assert "6 × compute_reward.reward: ZeroDivisionError: line 3" in end.error
    assert "2 × the agent loop timed out" in end.error
    assert world.facts(AttemptStepped) == []


async def test_failed_samples_are_counted_and_the_rest_is_trained_on(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    def judge(_group: object, sample: int, tokens: list[int]) -> float | None:
        return None if sample == 3 else float(tokens[0] % 7)

    broker.judge = judge
    recipe = await tiny_recipe(world, tmp_path, RUN, training={"max_steps": 1})
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.DONE
    (step,) = (s for s in world.facts(AttemptStepped) if s.phase == "train")
    assert (step.metrics["rollout/scored"], step.metrics["rollout/failed"]) == (6, 2)
    assert step.metrics["rollout/raw_reward"] > 0


async def test_an_attempt_that_is_fenced_off_reports_nothing_more(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    recipe = await tiny_recipe(world, tmp_path, RUN)

    async def take_over(batch: BatchRequested) -> bool:
        if batch.step == 2:
            await world.grant(RUN, TrainOrder(recipe=recipe))
        return batch.step != 2

    broker.on_batch = take_over
    await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, 1) is Exit.FENCED
    assert world.facts(AttemptEnded) == []
    assert [s.step for s in world.facts(AttemptStepped)] == [1]


async def test_a_broken_base_model_fails_the_run_in_a_sentence(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    recipe = await tiny_recipe(world, tmp_path, RUN)
    manifest = await world.platform.blobs.get_bytes(recipe.base_model.manifest)
    content = json.loads(manifest)
    content["files"] = [f for f in content["files"] if not f["path"].endswith(".safetensors")]
    broken = await world.platform.blobs.put_bytes("base-models/broken", json.dumps(content).encode())
    recipe = recipe.model_copy(
        update={"base_model": recipe.base_model.model_copy(update={"manifest": broken})}
    )
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.FAILED
    end = await ended(world)
    assert end.outcome == "failed"
    assert end.error and "\n" not in end.error
    assert broker.batches == []


async def test_an_attempt_that_nobody_wants_any_more_stops_at_once(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    recipe = await tiny_recipe(world, tmp_path, RUN)
    await world.state(RunCancelled(**RUN_FACT))
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    async with asyncio.timeout(60):
        assert await attempt(world, RUN, epoch) is Exit.DONE
    assert (await ended(world)).outcome == "cancelled"
    assert world.facts(AttemptStepped) == []
