"""Figures of a step that TRL does not know: what its rollouts say, and how far sampler and trainer are apart."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import torch

from services.trainer.optimisation.samples import Place


def rollout_facts(groups: Sequence[Sequence[Place]], signals: Sequence[bool]) -> dict[str, float]:
    """Of all places of the grid, before anything is left out. Names with `_` are for other figures, not for curves."""
    places = [place for group in groups for place in group]
    scored = [(place.reward, place.sampled_tokens) for place in places if place.reward is not None]
    present = sum(any(place.reward is not None for place in group) for group in groups)
    facts = {
        "rollout/failed": float(len(places) - len(scored)),
        "rollout/dropped_groups": float(present - sum(signals)),
        "_samples": float(len(scored)),
        "_tokens": float(sum(tokens for _, tokens in scored)),
    }
    if scored:
        rewards = [reward for reward, _ in scored]
        facts |= {
            "rollout/raw_reward": fmean(rewards),
            "rollout/reward_std": pstdev(rewards),
            "rollout/response_lengths": facts["_tokens"] / len(scored),
        }
    return facts


class Apart:
    """How far the trainer's log-probabilities are from the sampler's, over the sampled tokens of an update."""

    def __init__(self) -> None:
        self._tokens = self._difference = self._ratio = 0.0

    def add(self, log_ratio: torch.Tensor, mask: torch.Tensor) -> None:
        """A micro-batch: trainer minus sampler `[B, C]`, nats, where `mask` is not 0; NaN: not to be compared."""
        there = log_ratio[mask.bool() & ~log_ratio.isnan()].double()
        self._tokens += there.numel()
        self._difference += float(there.abs().sum())
        self._ratio += float(there.exp().sum())

    def figures(self) -> dict[str, float]:
        """Mean absolute difference in nats, and mean importance ratio (1 where the two agree)."""
        if not self._tokens:
            return {}
        return {
            "train/sampler_logprob_difference": self._difference / self._tokens,
            "train/importance_ratio": self._ratio / self._tokens,
        }
