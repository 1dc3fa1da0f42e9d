"""What a training needs from its surroundings, in terms without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from libs.common.contracts.recipes import RunConfig
from libs.common.contracts.trajectories import Group


@dataclass(frozen=True)
class TrainingJob:
    """A run's training: `from_step` steps are done already and their state is in the folder `checkpoint`."""

    base_model: Path
    config: RunConfig
    total_steps: int
    work_folder: Path
    from_step: int = 0
    checkpoint: Path | None = None
    device: str = "cpu"


class GroupSource(Protocol):
    """Where finished, scored groups come from. Called in the training thread; it may block."""

    def next_groups(self, step: int, version: int) -> Sequence[Group]:
        """The groups of a step, sampled by the policy's `version`; fewer than asked where rollouts failed.

        Whatever it raises ends the training with the state of the last finished step intact.
        """
        ...


class StepListener(Protocol):
    """Who hears of finished steps. Called in the training thread, when the engine samples from the new version."""

    def on_step(self, step: int, metrics: dict[str, float]) -> None:
        """Step `step` is done. Whatever it raises ends the training with the state of this step intact."""
        ...
