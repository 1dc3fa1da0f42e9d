"""Groups as TRL's trainer takes them: a full grid of rows × samples, token by token as they were sampled.

A trajectory without a (finite) reward, and a place of the grid that no rollout came back for, stands in the grid with no
trainable token and no reward (TRL's word for it: unscorable), so it moves neither the baseline nor the policy.
Further branches of a trajectory are kept beside the grid and share its advantage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.contracts.trajectories import Branch, Group, Trajectory


@dataclass(frozen=True)
class TokenSequence:
    """One token sequence: `prompt` is context, of `completion` the tokens with `mask` 1 were sampled.

    `logprobs`: one per completion token, nats; 0.0 where nothing was sampled, NaN where it was sampled at another
    temperature than the policy is trained at, so that the two cannot be compared.
    """

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Place:
    """One place of the grid."""

    first: TokenSequence
    more: tuple[TokenSequence, ...]
    reward: float | None

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the policy sampled, in all branches."""
        return sum(sum(sequence.mask) for sequence in (self.first, *self.more))


def grid(groups: Sequence[Group], rows: int, samples: int, *, filler: int, temperature: float) -> list[Place]:
    """`rows × samples` places, the samples of a group side by side.

    `filler` is the token of an empty place, `temperature` the one that the policy is trained at.
    """
    empty = Place(TokenSequence([filler], [filler], [0], [0.0]), (), None)
    places: list[Place] = []
    for group in list(groups)[:rows]:
        mine = [_place(trajectory, empty, temperature) for trajectory in group.trajectories[:samples]]
        places += mine + [empty] * (samples - len(mine))
    return places + [empty] * (rows * samples - len(places))


def has_signal(group: Sequence[Place]) -> bool:
    """Whether rewards of a group differ. Told by the rewards themselves: an advantage of equal ones is rarely quite 0."""
    rewards = {place.reward for place in group if place.reward is not None}
    return len(rewards) > 1


def _place(trajectory: Trajectory, empty: Place, temperature: float) -> Place:
    sequences = [
        _sequence(branch, temperature)
        for branch in trajectory.branches
        if any(span.logprobs for span in branch.sampled)
    ]
    if trajectory.reward is None or not math.isfinite(trajectory.reward) or not sequences:
        return empty
    return Place(sequences[0], tuple(sequences[1:]), trajectory.reward)


def _sequence(branch: Branch, temperature: float) -> TokenSequence:
    """Cut a branch before its first sampled token and behind its last."""
    start, stop = branch.sampled[0].start, branch.sampled[-1].stop
    mask, logprobs = [0] * (stop - start), [0.0] * (stop - start)
    for span in branch.sampled:
        place = slice(span.start - start, span.stop - start)
        mask[place] = [1] * len(span.logprobs)
        comparable = span.temperature == temperature
        logprobs[place] = span.logprobs if comparable else [math.nan] * len(span.logprobs)
    return TokenSequence(branch.token_ids[:start], branch.token_ids[start:stop], mask, logprobs)
