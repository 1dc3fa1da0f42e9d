"""A rollout broker and a rewards service as a test scripts them: one answer of the policy a rollout, over the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx

from libs.common.blobs.folders import upload_folder
from libs.common.bus import QueueSpec
from libs.common.contracts.attempts import BatchOrder
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.recipes import Recipe, ResumePoint
from libs.common.contracts.rollouts import BatchRequested, GroupCompleted, GroupSpec
from libs.common.contracts.trajectories import Branch, Group, RewardComponent, SampledSpan, Trajectory
from libs.common.contracts.work import CheckpointSaved
from libs.common.identifiers import GroupId, RunId, WorkId
from libs.common.parcels import pack
from services.trainer.attempt.running import Exit, run_attempt
from services.trainer.attempt.settings import AttemptSettings
from tests.support.tiny_model import make_tiny_model, make_tokenizer
from tests.trainer.worlds import WORKSPACE, World, recipe

BATCHES = QueueSpec("test.broker", (BatchRequested.KEY,), ordered=False)
Judge = Callable[[GroupSpec, int, list[int]], float | str | None]
"""`(group, sample, tokens)` -> the reward, or an error's text, or None for a rollout that failed."""


def low_bytes(_group: GroupSpec, _sample: int, tokens: list[int]) -> float:
    """The share of tokens in the lower half of the vocabulary: something that a tiny model can learn."""
    return sum(token < 128 for token in tokens) / len(tokens)


class Broker:
    """Answers `batch.requested`. Rollouts run one after the other, so that batches of the engine are always alike."""

    def __init__(self, world: World, judge: Judge = low_bytes) -> None:
        self.world = world
        self.judge = judge
        self.batches: list[BatchRequested] = []
        self.versions: dict[str, set[int]] = {}
        self.on_batch: Callable[[BatchRequested], object] = lambda _: None
        """Called before a batch is sampled; may return an awaitable. False: let the batch lie."""
        self._tokenizer = make_tokenizer()

    async def listen(self) -> None:
        """Take batches from now on."""
        await self.world.platform.bus.consume(BATCHES, self._hear, self._bury)

    async def _bury(self, envelope: Envelope, _deliveries: int, error: str) -> None:
        raise AssertionError(f"{envelope.type} died: {error}")

    async def _hear(self, envelope: Envelope, _delivery: int) -> None:
        batch = envelope.fact()
        assert isinstance(batch, BatchRequested)
        answer = self.on_batch(batch)
        if asyncio.iscoroutine(answer):
            answer = await answer
        self.batches.append(batch)
        if answer is False:
            return
        headers = {"Authorization": f"Bearer {self.world.token('engine', batch.run_id, batch.epoch)}"}
        async with httpx.AsyncClient(base_url=batch.engine_url, headers=headers, timeout=60) as engine:
            for spec in batch.groups:
                await self._complete(batch, await self._group(engine, batch, spec))

    async def _group(self, engine: httpx.AsyncClient, batch: BatchRequested, spec: GroupSpec) -> Group:
        samples = [await self._rollout(engine, batch, spec, n) for n in range(batch.n_samples)]
        return Group(
            group_id=spec.group_id,
            run_id=batch.run_id,
            epoch=batch.epoch,
            batch_id=batch.batch_id,
            row_index=spec.row_index,
            trajectories=samples,
        )

    async def _rollout(
        self, engine: httpx.AsyncClient, batch: BatchRequested, spec: GroupSpec, number: int
    ) -> Trajectory:
        prompt: list[int] = self._tokenizer(f"row {spec.row_index}").input_ids
        request = {
            "prompt_ids": prompt,
            "max_tokens": batch.sampling.max_response_length,
            "temperature": batch.sampling.temperature,
            "seed": hash((batch.seed, spec.row_index, number)) % 2**31,
        }
        answer = await engine.post("/v1/sample", json=request)
        assert answer.status_code == 200, answer.text
        sampled = answer.json()
        self.versions.setdefault(f"{batch.phase}:{batch.step}", set()).add(sampled["version"])
        verdict = self.judge(spec, number, sampled["token_ids"])
        span = SampledSpan(
            start=len(prompt),
            logprobs=sampled["logprobs"],
            version=sampled["version"],
            temperature=batch.sampling.temperature,
        )
        reward = verdict if isinstance(verdict, float) else None
        error = verdict if isinstance(verdict, str) else None
        return Trajectory(
            rollout_id=f"{spec.group_id}_{number}",
            group_id=spec.group_id,
            row_index=spec.row_index,
            sample_index=number,
            status="failed" if verdict is None else "completed",
            error="the agent loop timed out" if verdict is None else None,
            branches=[Branch(token_ids=prompt + sampled["token_ids"], sampled=[span])],
            reward=reward,
            components=[RewardComponent(name="compute_reward.reward", value=reward, error=error)],
        )

    async def _complete(self, batch: BatchRequested, group: Group) -> None:
        key = f"groups/{batch.run_id}/{group.group_id}/group.json"
        await self.world.state(
            GroupCompleted(
                workspace_id=WORKSPACE,
                group_id=GroupId(group.group_id),
                batch_id=batch.batch_id,
                run_id=RunId(batch.run_id),
                epoch=batch.epoch,
                step=batch.step,
                phase=batch.phase,
                group=await pack(self.world.platform.blobs, group, key),
            )
        )


async def tiny_recipe(world: World, folder: Path, run_id: str, *, rows: int = 6, **config: object) -> Recipe:
    """A recipe over the tiny model: two groups of four samples a step."""
    model = await asyncio.to_thread(make_tiny_model, folder / "tiny")
    manifest = await upload_folder(
        world.platform.blobs, model, "base-models/mdl_tiny", kind="base_model", attributes={}
    )
    training: dict[str, object] = {
        "n_samples_per_prompt": 4,
        "global_batch_size": 8,
        "micro_batch_size": 8,
        "lr": 1e-2,
        "max_steps": 3,
        "lora": {"rank": 4},
    }
    defaults: dict[str, object] = {
        "training": training | config.pop("training", {}),  # type: ignore[operator]
        "sampling": {"max_response_length": 4},
        "checkpoints": {"interval": 0},
    }
    return recipe(run_id, rows=rows, base_model=manifest, **(defaults | config))


async def attempt(world: World, work_id: str, epoch: int) -> Exit:
    """Run an attempt in this process, as the scheduler would start it."""
    settings = world.platform.settings
    return await run_attempt(
        AttemptSettings.model_validate(
            {
                "data_dir": settings.data_dir,
                "attempt_url": world.address,
                "attempt_work_id": work_id,
                "attempt_epoch": epoch,
                "attempt_token": world.token("attempt", work_id, epoch),
                "engine_token": world.token("engine", work_id, epoch),
                "attempt_devices": "cpu:0",
            }
        )
    )


def newest_checkpoint(world: World, work_id: WorkId | str) -> ResumePoint:
    """Where the next attempt of a run goes on."""
    saved = [fact for fact in world.facts(CheckpointSaved) if fact.run_id == work_id][-1]
    return ResumePoint(checkpoint_id=saved.checkpoint_id, step=saved.step, manifest=saved.manifest)


def asked(order: BatchOrder | BatchRequested) -> list[int]:
    """Rows of a batch."""
    return [spec.row_index for spec in order.groups]
