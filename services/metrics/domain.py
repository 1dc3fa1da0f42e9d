"""Curves as values: titles, and down-sampling that keeps the extremes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from libs.common.contracts.metrics import MetricPoint

TITLES = {
    "rollout/raw_reward": "Training Reward",
    "eval/validation/reward": "Validation Reward",
    "train/entropy_loss": "Model Entropy",
    "rollout/response_lengths": "Response Length",
    "train/kl": "KL Divergence",
    "train/loss": "Loss",
    "train/grad_norm": "Gradient Norm",
    "train/learning_rate": "Learning Rate",
    "rollout/failed": "Failed Rollouts",
    "rollout/dropped_groups": "Groups Without Signal",
    "perf/samples_per_second": "Samples per Second",
    "perf/tokens_per_second": "Tokens per Second",
}
"""Titles of the charts that users know; another key's title is made of the key."""


def title_of(key: str) -> str:
    """`train/clip_ratio` → `Train Clip Ratio`."""
    return TITLES.get(key) or key.replace("/", " ").replace("_", " ").title()


def downsample(points: Sequence[MetricPoint], max_points: int) -> list[MetricPoint]:
    """At most `max_points` points: first and last as they are, between them buckets of equal size.

    A bucket's point stands at its last step with the mean of its values; `low` and `high` are its extremes.
    """
    if len(points) <= max_points:
        return list(points)
    inner, buckets = points[1:-1], max_points - 2
    if buckets == 0:
        return [points[0], points[-1]]
    edges = [i * len(inner) // buckets for i in range(buckets + 1)]
    merged = [_merge(inner[start:stop]) for start, stop in itertools.pairwise(edges)]
    return [points[0], *merged, points[-1]]


def _merge(bucket: Sequence[MetricPoint]) -> MetricPoint:
    values = [point.value for point in bucket]
    return MetricPoint(
        step=bucket[-1].step,
        value=sum(values) / len(values),
        at=bucket[-1].at,
        low=min(values),
        high=max(values),
    )
