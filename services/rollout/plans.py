"""What is to be run: values that name everything a rollout needs, made once a batch."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.contracts.recipes import DatasetSnapshot, Recipe
from libs.common.contracts.rollouts import BatchRequested
from libs.common.identifiers import GroupId, RolloutId
from services.rollout.rendering import Renderer
from services.rollout.rows import Prompt


@dataclass(frozen=True)
class Seat:
    """A rollout's place in its group. `replacement`: how many rollouts failed in it before."""

    rollout_id: RolloutId
    sample_index: int
    replacement: int = 0


@dataclass(frozen=True)
class GroupClaim:
    """A group that this replica runs, with a rollout in each of its seats."""

    batch: BatchRequested
    group_id: GroupId
    row_index: int
    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class GroupPlan:
    """A claimed group with what its rollouts are run by."""

    claim: GroupClaim
    recipe: Recipe
    renderer: Renderer
    prompt: Prompt


def dataset_of(batch: BatchRequested, recipe: Recipe) -> DatasetSnapshot:
    """Where the rows of a batch are: a validation's in the validation dataset, where the run has one."""
    if batch.phase == "validation" and recipe.validation_dataset is not None:
        return recipe.validation_dataset
    return recipe.dataset
