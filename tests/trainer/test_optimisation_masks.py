"""What a trajectory's tokens may and may not do to the policy: tools, branches, truncated sampling, tempered spans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model_state_dict

from libs.common.contracts.recipes import RunConfig
from libs.common.contracts.trajectories import Branch, Group, SampledSpan, Trajectory
from services.trainer.optimisation.job import TrainingJob
from services.trainer.optimisation.policy import Policy
from services.trainer.optimisation.training import Training
from tests.support.tiny_model import make_tiny_model

PROMPT = [50, 51, 52]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def config(sampling: dict[str, Any] | None = None, **training: Any) -> RunConfig:
    settings = {"lr": 1e-2, "n_samples_per_prompt": 2, "global_batch_size": 2, "lora": {"rank": 4}} | training
    return RunConfig.model_validate(
        {
            "base_model": "m",
            "dataset": "d",
            "rewards": [{"name": "r.f"}],
            "sampling": sampling or {},
            "training": settings,
        }
    )


def branch(ids: Sequence[int], *spans: tuple[int, Sequence[float]], temperature: float = 1.0) -> Branch:
    sampled = [
        SampledSpan(start=start, logprobs=list(logprobs), version=0, temperature=temperature)
        for start, logprobs in spans
    ]
    return Branch(token_ids=list(ids), sampled=sampled)


def group(*samples: tuple[Sequence[Branch], float | None]) -> Group:
    trajectories = [
        Trajectory(
            rollout_id=f"r{i}",
            group_id="g",
            row_index=0,
            sample_index=i,
            status="completed",
            branches=list(branches),
            reward=reward,
        )
        for i, (branches, reward) in enumerate(samples)
    ]
    return Group(group_id="g", run_id="r", epoch=1, batch_id="b", row_index=0, trajectories=trajectories)


class Once:
    """Source and listener of a single step."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.metrics: dict[str, float] = {}

    def next_groups(self, step: int, version: int) -> Sequence[Group]:
        return self.groups

    def on_step(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics = metrics


Adapter = dict[str, torch.Tensor]


def step(base: Path, folder: Path, groups: Sequence[Group], settings: RunConfig) -> tuple[Adapter, Once]:
    """The adapter after one step, and what was told."""
    once = Once(groups)
    job = TrainingJob(base, settings, 1, folder / "work")
    policy = Policy.open(job)
    try:
        Training(job, policy, once, once).run()
        return {n: t.clone() for n, t in get_peft_model_state_dict(policy.model).items()}, once
    finally:
        policy.close()


def close(one: Adapter, other: Adapter) -> bool:
    return all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


FLAT = [-5.5] * 3


def test_only_what_the_policy_sampled_is_trained(base: Path, tmp_path: Path) -> None:
    """Tokens behind the last answer would be trained, were they not masked: they change nothing at all."""
    short = [*PROMPT, 1, 2, 3]
    with_tool = [*short, 90, 91, 92]
    good, bad = branch(short, (3, FLAT)), branch([*PROMPT, 4, 5, 6], (3, FLAT))
    trailing = branch(with_tool, (3, FLAT))
    plain, _ = step(base, tmp_path / "a", [group(([good], 1.0), ([bad], 0.0))], config())
    tooled, _ = step(base, tmp_path / "b", [group(([trailing], 1.0), ([bad], 0.0))], config())
    assert close(plain, tooled)


def test_tool_tokens_between_answers_are_context_without_gradient(base: Path, tmp_path: Path) -> None:
    ids, bad = [*PROMPT, 1, 2, 90, 91, 92, 93, 3], [*PROMPT, 4, 5, 6]
    settings = config(loss="dapo", importance_correction=False)
    sampled = branch(ids, (3, FLAT[:2]), (9, FLAT[:1]))
    after, told = step(
        base, tmp_path / "a", [group(([sampled], 1.0), ([branch(bad, (3, FLAT))], 0.0))], settings
    )
    assert told.metrics["rollout/response_lengths"] == 3
    mine = slopes(base, tmp_path / "b", settings, [(ids, [3, 4, 9], 1.0), (bad, [3, 4, 5], -1.0)])
    others = slopes(base, tmp_path / "c", settings, [(ids, [*range(3, 10)], 1.0), (bad, [3, 4, 5], -1.0)])
    # Adam's first step has the size of the learning rate and the sign of the slope.
    assert agreement(after, mine) > 0.99
    assert agreement(after, others) < 0.95


def slopes(
    base: Path, folder: Path, settings: RunConfig, sequences: Sequence[tuple[list[int], list[int], float]]
) -> Adapter:
    """Of the fresh adapter: the slope of the sum of advantage times log-probability over the given places."""
    policy = Policy.open(TrainingJob(base, settings, 1, folder))
    try:
        for ids, places, advantage in sequences:
            logs = policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
            (advantage * sum(logs[place - 1, ids[place]] for place in places)).backward()
        found = {n.replace(".default", ""): p.grad for n, p in policy.model.named_parameters()}
        return {n: grad for n, grad in found.items() if grad is not None}
    finally:
        policy.close()


def agreement(after: Adapter, slope: Adapter) -> float:
    """Share of the second factors' weights, 0 before the step, that moved the way of the slope."""
    same = [(after[n].sign() == slope[n].sign()).flatten() for n in after if "lora_B" in n]
    return float(torch.cat(same).float().mean())


def test_every_branch_of_a_trajectory_has_its_advantage(base: Path, tmp_path: Path) -> None:
    first, second = branch([*PROMPT, 1, 2, 3], (3, FLAT)), branch([60, 61, 7, 8, 9], (2, FLAT))
    bad = branch([*PROMPT, 4, 5, 6], (3, FLAT))
    settings = config(loss="grpo", importance_correction=False)
    one, _ = step(base, tmp_path / "a", [group(([first], 1.0), ([bad], 0.0))], settings)
    both, _ = step(base, tmp_path / "b", [group(([first, second], 1.0), ([bad], 0.0))], settings)
    swapped, _ = step(base, tmp_path / "c", [group(([second, first], 1.0), ([bad], 0.0))], settings)
    assert not close(one, both)
    assert close(both, swapped)


def test_equal_rewards_that_floats_cannot_average_are_no_signal(base: Path, tmp_path: Path) -> None:
    good, bad = branch([*PROMPT, 1, 2, 3], (3, FLAT)), branch([*PROMPT, 4, 5, 6], (3, FLAT))
    samples = [([good], 0.1), ([bad], 0.1), ([good], 0.1)]
    settings = config(n_samples_per_prompt=3, global_batch_size=3)
    after, once = step(base, tmp_path, [group(*samples)], settings)
    assert once.metrics["rollout/dropped_groups"] == 1
    assert all(not tensor.any() for name, tensor in after.items() if "lora_B" in name)


def test_a_step_says_how_far_sampler_and_trainer_are_apart(base: Path, tmp_path: Path) -> None:
    near = {"top_p": 1.0}
    good, bad = branch([*PROMPT, 1, 2, 3], (3, FLAT)), branch([*PROMPT, 4, 5, 6], (3, FLAT))
    _, once = step(base, tmp_path, [group(([good], 1.0), ([bad], 0.0))], config(near))
    # A random model of 259 tokens gives each about -5.56 nats.
    assert 0 < once.metrics["train/sampler_logprob_difference"] < 1
    assert 0.5 < once.metrics["train/importance_ratio"] < 2


@pytest.mark.parametrize("cut", [{"top_p": 0.5}, {"top_k": 3}])
def test_log_probabilities_of_a_cut_distribution_correct_nothing(
    base: Path, tmp_path: Path, cut: dict[str, Any]
) -> None:
    """They are of another distribution than the one that is trained: whatever they are, the update is the same."""

    def samples(logprob: float) -> list[Group]:
        good = branch([*PROMPT, 1, 2, 3], (3, [logprob] * 3))
        bad = branch([*PROMPT, 4, 5, 6], (3, [logprob] * 3))
        return [group(([good], 1.0), ([bad], 0.0))]

    high, _ = step(base, tmp_path / "a", samples(-0.1), config(cut))
    low, _ = step(base, tmp_path / "b", samples(-9.0), config(cut))
    whole_high, _ = step(base, tmp_path / "c", samples(-0.1), config())
    whole_low, _ = step(base, tmp_path / "d", samples(-9.0), config())
    assert close(high, low)
    assert not close(whole_high, whole_low)


def test_several_updates_of_a_batch_are_one_step(base: Path, tmp_path: Path) -> None:
    good, bad = branch([*PROMPT, 1, 2, 3], (3, FLAT)), branch([*PROMPT, 4, 5, 6], (3, FLAT))
    groups = [group(([good], 1.0), ([bad], 0.0))]
    once_moved, _ = step(base, tmp_path / "a", groups, config())
    for i, correct in enumerate((True, False)):
        settings = config(updates_per_batch=3, importance_correction=correct)
        moved, told = step(base, tmp_path / f"b{i}", groups, settings)
        assert told.metrics["rollout/raw_reward"] == 0.5
        assert not close(once_moved, moved)
