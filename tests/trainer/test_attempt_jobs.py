"""Merge and export attempts, on a checkpoint that a training attempt saved."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from libs.common.blobs.folders import download_folder, read_manifest
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import ExportOrder, MergeOrder, Recipe, TrainOrder
from libs.common.contracts.work import AttemptEnded, AttemptStarted, JobCancelled
from libs.common.identifiers import CheckpointId, JobId, ModelId
from services.trainer.attempt.running import Exit
from tests.trainer.brokers import Broker, attempt, newest_checkpoint, tiny_recipe
from tests.trainer.worlds import NOWHERE, WORKSPACE, World, trainer_world, until

RUN, MODEL = "run_1", ModelId("mdl_out")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with trainer_world(tmp_path, lease_ttl_s=10) as world:
        yield world


def merge_order(recipe: Recipe, checkpoint: BlobRef, job: str = "job_merge") -> MergeOrder:
    return MergeOrder(
        job_id=JobId(job),
        workspace_id=WORKSPACE,
        model_id=MODEL,
        checkpoint_id=CheckpointId("ckpt_1"),
        base_model=recipe.base_model,
        checkpoint=checkpoint,
    )


async def carried_out(world: World, job: str, order: MergeOrder | ExportOrder) -> AttemptEnded:
    """The end of a job's attempt."""
    before = len(world.facts(AttemptEnded))
    epoch = await world.grant(job, order, kind="job")
    await attempt(world, job, epoch)
    await until(lambda: len(world.facts(AttemptEnded)) > before, f"the end of {job}")
    return world.facts(AttemptEnded)[-1]


async def test_a_trained_adapter_is_merged_exported_and_loads(world: World, tmp_path: Path) -> None:
    await Broker(world).listen()
    recipe = await tiny_recipe(world, tmp_path, RUN, training={"max_steps": 2})
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    assert await attempt(world, RUN, epoch) is Exit.DONE
    await until(lambda: world.facts(AttemptEnded), "the run's end")
    checkpoint = newest_checkpoint(world, RUN)

    merged = await carried_out(world, "job_merge", merge_order(recipe, checkpoint.manifest))
    assert (merged.outcome, merged.work_kind, merged.error) == ("completed", "job", None)
    assert merged.artifact is not None
    assert merged.artifact.key == f"models/{MODEL}/manifest.json"
    assert (await read_manifest(world.platform.blobs, merged.artifact)).kind == "model"

    order = ExportOrder(
        job_id=JobId("job_export"),
        workspace_id=WORKSPACE,
        model_id=MODEL,
        model=merged.artifact,
        base_model=recipe.base_model,
        recipe=recipe.model_dump(mode="json"),
        metrics={"eval/validation/reward": 0.75},
    )
    exported = await carried_out(world, "job_export", order)
    assert (exported.outcome, exported.error) == ("completed", None)
    assert exported.artifact is not None
    folder = await download_folder(world.platform.blobs, exported.artifact, tmp_path / "loaded")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("row 1", return_tensors="pt").input_ids
    trained = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny")(ids).logits
    assert not torch.allclose(trained, base)
    assert "tiny" in (folder / "README.md").read_text()
    assert [fact.work_kind for fact in world.facts(AttemptStarted)] == ["run", "job", "job"]


async def test_a_merge_of_a_checkpoint_that_is_gone_fails_in_a_sentence(world: World, tmp_path: Path) -> None:
    recipe = await tiny_recipe(world, tmp_path, RUN)
    end = await carried_out(world, "job_merge", merge_order(recipe, NOWHERE))
    assert end.outcome == "failed"
    assert end.error and "nowhere" in end.error and "\n" not in end.error
    assert end.artifact is None


async def test_a_cancelled_job_leaves_no_model(world: World, tmp_path: Path) -> None:
    recipe = await tiny_recipe(world, tmp_path, RUN)
    await world.state(JobCancelled(workspace_id=WORKSPACE, job_id=JobId("job_merge")))
    end = await carried_out(world, "job_merge", merge_order(recipe, recipe.base_model.manifest))
    assert end.outcome == "cancelled"
    assert await world.platform.blobs.stat(f"models/{MODEL}/manifest.json") is None
