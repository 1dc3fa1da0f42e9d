"""What groups say in numbers and words. A sample without a reward is counted, never read as 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from libs.common.contracts.trajectories import Group, Trajectory

REASONS_SHOWN = 5


def validation_metrics(groups: Iterable[Group], asked: int) -> dict[str, float]:
    """Mean reward of the samples that have one (absent when none has), how many have, how many of `asked` have not."""
    rewards = [sample.reward for sample in _samples(groups) if sample.reward is not None]
    metrics = {
        "eval/validation/count": float(len(rewards)),
        "eval/validation/failed": float(asked - len(rewards)),
    }
    if rewards:
        metrics["eval/validation/reward"] = sum(rewards) / len(rewards)
    return metrics


def rollout_metrics(groups: Iterable[Group], asked: int) -> dict[str, float]:
    """How many of `asked` samples of a training batch have a reward, and how many have not."""
    scored = sum(sample.reward is not None for sample in _samples(groups))
    return {"rollout/scored": float(scored), "rollout/failed": float(asked - scored)}


def why_none_was_scored(groups: Iterable[Group]) -> str | None:
    """The distinct errors of a batch in which no sample has a reward, the most frequent first; None when one has."""
    samples = list(_samples(groups))
    if any(sample.reward is not None for sample in samples):
        return None
    reasons = Counter(reason for sample in samples for reason in _reasons(sample))
    if not reasons:
        return "no rollout came back in time"
    shown = [f"{count} × {reason}" for reason, count in reasons.most_common(REASONS_SHOWN)]
    left = len(reasons) - len(shown)
    return "; ".join([*shown, *([f"and {left} other errors"] if left > 0 else [])])


def _reasons(sample: Trajectory) -> Iterator[str]:
    if sample.error is not None:
        yield sample.error
        return
    named = [f"{part.name}: {part.error}" for part in sample.components if part.error is not None]
    yield from named or ["no reward function answered"]


def _samples(groups: Iterable[Group]) -> Iterator[Trajectory]:
    return (sample for group in groups for sample in group.trajectories)
