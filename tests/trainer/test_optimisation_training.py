"""Training on groups that are made here, without rollouts: what moves the policy and what must not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file

from libs.common.contracts.recipes import RunConfig
from libs.common.contracts.trajectories import Branch, Group, SampledSpan, Trajectory
from services.trainer.artifacts.checkpoints import NotACheckpoint
from services.trainer.optimisation.job import TrainingJob
from services.trainer.optimisation.policy import Policy
from services.trainer.optimisation.training import Training
from tests.support.tiny_model import make_tiny_model

ROWS, SAMPLES = 2, 4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def config(**training: Any) -> RunConfig:
    settings = {
        "lr": 1e-2,
        "n_samples_per_prompt": SAMPLES,
        "global_batch_size": ROWS * SAMPLES,
        "lora": {"rank": 4},
        **training,
    }
    return RunConfig.model_validate(
        {"base_model": "m", "dataset": "d", "rewards": [{"name": "r.f"}], "training": settings, "seed": 5}
    )


def trajectory(
    tokens: random.Random, row: int, sample: int, reward: float | None, **changes: Any
) -> Trajectory:
    """A prompt of the row, an answer, tool tokens in between, and a second answer."""
    prompt = [40 + row] * (5 + row)
    first, tool, second = ([tokens.randrange(250) for _ in range(n)] for n in (4, 3, 2 + sample))
    ids = [*prompt, *first, *tool, *second]
    spans = [
        SampledSpan(start=len(prompt), logprobs=[-5.0] * len(first), version=0),
        SampledSpan(start=len(prompt) + 7, logprobs=[-5.0] * len(second), version=0),
    ]
    return Trajectory(
        rollout_id=f"r{row}-{sample}",
        group_id=f"g{row}",
        row_index=row,
        sample_index=sample,
        status="completed",
        branches=[Branch(token_ids=ids, sampled=spans)],
        reward=reward,
        **changes,
    )


def groups(step: int, rewards: Sequence[Sequence[float | None]]) -> list[Group]:
    tokens = random.Random(step)
    return [
        Group(
            group_id=f"g{row}",
            run_id="run",
            epoch=1,
            batch_id=f"b{step}",
            row_index=row,
            trajectories=[trajectory(tokens, row, i, reward) for i, reward in enumerate(of_row)],
        )
        for row, of_row in enumerate(rewards)
    ]


MIXED = ((1.0, 0.0, 0.5, 0.0), (0.0, 1.0, 0.0, 0.25))


class Scripted:
    """Groups by step, and the metrics that were told."""

    def __init__(self, rewards: Sequence[Sequence[float | None]] = MIXED) -> None:
        self.rewards = rewards
        self.told: dict[int, dict[str, float]] = {}

    def next_groups(self, step: int, version: int) -> Sequence[Group]:
        assert version == step - 1
        return groups(step, self.rewards)

    def on_step(self, step: int, metrics: dict[str, float]) -> None:
        self.told[step] = metrics


class Trained:
    """A finished piece of training."""

    def __init__(
        self,
        base: Path,
        folder: Path,
        settings: RunConfig,
        *,
        steps: int = 2,
        total: int | None = None,
        rewards: Sequence[Sequence[float | None]] = MIXED,
        checkpoint: Path | None = None,
        from_step: int = 0,
    ) -> None:
        self.source = Scripted(rewards)
        job = TrainingJob(base, settings, steps, folder / "work", from_step, checkpoint)
        self.policy = Policy.open(job)
        self.training = Training(job, self.policy, self.source, self.source)
        self.before = adapter(self.policy)
        self.training.run()
        self.after = adapter(self.policy)
        self.policy.close()


def adapter(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in get_peft_model_state_dict(policy.model).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], atol=2e-4) for name in one)


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_every_loss_moves_the_policy_the_same_way_whatever_the_micro_batch(
    base: Path, tmp_path: Path, loss: str
) -> None:
    whole = Trained(base, tmp_path / "a", config(loss=loss, micro_batch_size=8))
    single = Trained(base, tmp_path / "b", config(loss=loss, micro_batch_size=1))
    assert not same(whole.before, whole.after)
    assert close(whole.after, single.after)


def test_a_step_without_any_signal_changes_no_weight(base: Path, tmp_path: Path) -> None:
    trained = Trained(base, tmp_path, config(), rewards=((1.0,) * 4, (0.0,) * 4))
    assert same(trained.before, trained.after)
    assert sorted(trained.source.told) == [1, 2]
    assert trained.source.told[1]["rollout/dropped_groups"] == 2
    assert trained.source.told[1]["rollout/raw_reward"] == 0.5


def test_a_group_without_signal_takes_no_part(base: Path, tmp_path: Path) -> None:
    both = Trained(base, tmp_path / "a", config(), rewards=(MIXED[0], (1.0,) * 4), steps=1)
    alone = Trained(base, tmp_path / "b", config(), rewards=(MIXED[0],), steps=1)
    assert close(both.after, alone.after)
    assert both.source.told[1]["rollout/dropped_groups"] == 1


def test_an_absent_reward_is_never_a_zero(base: Path, tmp_path: Path) -> None:
    absent = Trained(base, tmp_path / "a", config(), rewards=((1.0, 0.5, None, None), (None,) * 4), steps=1)
    zero = Trained(base, tmp_path / "b", config(), rewards=((1.0, 0.5, 0.0, 0.0), (None,) * 4), steps=1)
    assert not close(absent.after, zero.after)
    told = absent.source.told[1]
    assert (told["rollout/failed"], told["rollout/raw_reward"]) == (6, 0.75)


def test_a_step_in_which_nothing_was_scored_is_reported_without_a_reward(base: Path, tmp_path: Path) -> None:
    trained = Trained(base, tmp_path, config(), rewards=((None,) * 4, (None,) * 4), steps=1)
    assert same(trained.before, trained.after)
    assert "rollout/raw_reward" not in trained.source.told[1]


@pytest.mark.parametrize(
    "changes", [{}, {"lr_schedule": "linear", "warmup_steps": 1, "kl_coefficient": 0.05}]
)
def test_resuming_gives_the_same_run_bit_for_bit(base: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = config(**changes)
    straight = Trained(base, tmp_path / "straight", settings, steps=4)
    straight.training.save(tmp_path / "end", {})

    class Halting(Scripted):
        def on_step(self, step: int, metrics: dict[str, float]) -> None:
            super().on_step(step, metrics)
            if step == 2:
                raise InterruptedError

    source = Halting()
    job = TrainingJob(base, settings, 4, tmp_path / "first")
    policy = Policy.open(job)
    first = Training(job, policy, source, source)
    with pytest.raises(InterruptedError):
        first.run()
    assert first.last_step == 2
    first.save(tmp_path / "middle", {"rollout/raw_reward": 0.5})
    policy.close()

    second = Trained(
        base, tmp_path / "second", settings, steps=4, checkpoint=tmp_path / "middle", from_step=2
    )
    second.training.save(tmp_path / "again", {})
    assert sorted(second.source.told) == [3, 4]
    assert same(straight.after, second.after)
    assert same(
        load_file(tmp_path / "end/optimizer.safetensors"), load_file(tmp_path / "again/optimizer.safetensors")
    )


def test_a_checkpoint_holds_no_pickle_and_a_damaged_one_is_refused(base: Path, tmp_path: Path) -> None:
    trained = Trained(base, tmp_path / "a", config(), steps=1)
    trained.training.save(tmp_path / "kept", {})
    kinds = {path.suffix for path in (tmp_path / "kept").iterdir()}
    assert kinds <= {".safetensors", ".json", ".md"}
    (tmp_path / "kept" / "optimizer.safetensors").write_bytes(b"not a tensor file")
    with pytest.raises(NotACheckpoint):
        Trained(base, tmp_path / "b", config(), checkpoint=tmp_path / "kept", from_step=1)


def test_the_engine_samples_from_what_was_trained(base: Path, tmp_path: Path) -> None:
    trained = Trained(base, tmp_path, config(), steps=2)
    ids = torch.tensor([[40, 41, 42, 43, 44]])
    with torch.no_grad():
        adapted = trained.policy.model(ids).logits
        merged = trained.policy.sampler(ids).logits
        with trained.policy.model.disable_adapter():
            plain = trained.policy.model(ids).logits
    assert torch.allclose(adapted, merged, atol=1e-4)
    assert not torch.allclose(plain, merged, atol=1e-3)
    assert trained.policy.engine.version == 2
