"""From a group and its verdicts to the scores that are told. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from libs.common.contracts.recipes import RewardRef, ScoringConfig
from libs.common.contracts.rollouts import SampleScore
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.identifiers import RolloutId
from services.rewards.domain.inputs import FunctionRef, RewardInput
from services.rewards.domain.verdicts import RewardVerdict, component_of, no_value, weighted_sum
from services.rewards.sandbox.limits import MIB, Limits

TEXT_BUDGET = 32 * 1024
"""Characters of printed text and errors that the scores of one group carry: they travel in a message."""

_LEAST_TEXT = 256


def limits_of(scoring: ScoringConfig) -> Limits:
    """The limits of a call that a run's configuration asks for."""
    return Limits(
        wall_s=scoring.timeout_s,
        cpu_s=math.ceil(scoring.timeout_s),
        memory_bytes=scoring.memory_mb * MIB,
    )


def functions_of(rewards: Sequence[RewardRef]) -> list[FunctionRef]:
    """The functions of a run, in its order."""
    return [FunctionRef(one.name, one.file, one.function, one.kind) for one in rewards]


def scorable(group: Group) -> list[Trajectory]:
    """The trajectories that came to an end of their own; failed ones have no reward, whatever a function would say."""
    return [trajectory for trajectory in group.trajectories if trajectory.status == "completed"]


def input_of(trajectory: Trajectory) -> RewardInput:
    """What the functions see of a trajectory."""
    return RewardInput(
        sample_id=trajectory.rollout_id,
        messages=trajectory.messages,
        ground_truth=trajectory.ground_truth,
        metadata=trajectory.metadata,
        num_turns=trajectory.turns,
    )


def all_without_value(group: Group, rewards: Sequence[RewardRef], reason: str) -> list[list[RewardVerdict]]:
    """Verdicts where no function could be called at all."""
    return [[no_value("import", reason) for _ in rewards] for _ in scorable(group)]


def scores_of(
    group: Group, rewards: Sequence[RewardRef], verdicts: Sequence[Sequence[RewardVerdict]]
) -> list[SampleScore]:
    """One score a trajectory, in the group's order. `verdicts`: of the scorable trajectories, in that order."""
    text = max(_LEAST_TEXT, TEXT_BUDGET // max(1, 2 * len(rewards) * len(group.trajectories)))
    by_rollout = dict(zip((one.rollout_id for one in scorable(group)), verdicts, strict=True))
    return [_score(one, rewards, by_rollout.get(one.rollout_id, ()), text) for one in group.trajectories]


def _score(
    trajectory: Trajectory, rewards: Sequence[RewardRef], verdicts: Sequence[RewardVerdict], text: int
) -> SampleScore:
    components = [
        component_of(ref.name, ref.weight, verdict).model_copy(update=_shortened(verdict, text))
        for ref, verdict in zip(rewards, verdicts, strict=False)
    ]
    return SampleScore(
        rollout_id=RolloutId(trajectory.rollout_id), reward=weighted_sum(components), components=components
    )


def _shortened(verdict: RewardVerdict, text: int) -> dict[str, str | None]:
    error = None if verdict.error is None else f"{verdict.error_kind}: {verdict.error}"
    return {"output": _cut(verdict.output, text), "error": error and _cut(error, text)}


def _cut(text: str, most: int) -> str:
    note = "\n[cut]"
    return text if len(text) <= most else text[: most - len(note)] + note
