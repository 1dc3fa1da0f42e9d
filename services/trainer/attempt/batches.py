"""Asks the trainer service for a batch of rollouts and waits for its groups.

Guaranteed: a batch never waits for ever; groups come out in the order in which they were asked for, whatever the order
in which they were completed; nothing is taken twice.
"""

from __future__ import annotations

import asyncio

import structlog

from libs.common.blobs import BlobStore
from libs.common.contracts.attempts import BatchOrder
from libs.common.contracts.recipes import Recipe, RunConfig, SamplingConfig
from libs.common.contracts.rollouts import GroupSpec, Phase
from libs.common.contracts.trajectories import Group
from libs.common.identifiers import BatchId, GroupId
from libs.common.parcels import unpack
from services.trainer.attempt.control import Control
from services.trainer.attempt.link import Link
from services.trainer.attempt.rows import batch_seed

POLL_S = 2.0
"""One long poll; a directive is seen at the latest after so long."""
SCORING_GRACE_S = 60.0
"""On top of the time that scoring may take: queues and retries between broker and rewards."""

_log = structlog.get_logger(__name__)


def batch_order(recipe: Recipe, epoch: int, phase: Phase, step: int, rows: tuple[int, ...]) -> BatchOrder:
    """The batch of a step: a pure function, so that asking again after a lost answer asks for the same."""
    config = recipe.config
    name = f"{recipe.run_id}_{epoch}_{phase}_{step}"
    groups = [GroupSpec(group_id=GroupId(f"group_{name}_{row}"), row_index=row) for row in rows]
    training = phase == "train"
    return BatchOrder(
        batch_id=BatchId(f"batch_{name}"),
        step=step,
        phase=phase,
        groups=groups,
        n_samples=config.training.n_samples_per_prompt if training else config.validation.n_samples,
        sampling=config.sampling if training else _validation_sampling(config),
        seed=batch_seed(config.seed, phase, step),
        timeout_s=config.rollout.timeout_s * (1 + config.rollout.max_replacements),
    )


def _validation_sampling(config: RunConfig) -> SamplingConfig:
    return config.sampling.model_copy(update={"temperature": config.validation.temperature})


class Batches:
    """Batches of one attempt."""

    def __init__(self, link: Link, blobs: BlobStore, control: Control) -> None:
        self._link = link
        self._blobs = blobs
        self._control = control

    async def sample(self, order: BatchOrder, scoring_timeout_s: float) -> list[Group]:
        """The batch's groups, in the order of `order.groups`; those that did not come in time are left out.

        Raises:
            Told: the attempt was told to stop meanwhile.
            Fenced, Unreachable: as the link says.
        """
        now = asyncio.get_running_loop().time
        limit = order.timeout_s + scoring_timeout_s * order.n_samples + SCORING_GRACE_S
        deadline = now() + limit
        await self._link.request_batch(order)
        groups: dict[str, Group] = {}
        position, done = 0, False
        while not done and now() < deadline:
            self._control.check()
            answer = await self._link.groups(order.batch_id, position, POLL_S)
            for parcel in answer.groups:
                group = await unpack(self._blobs, parcel, Group)
                groups[group.group_id] = group
            position, done = answer.position, answer.done
        if not done:
            missing = len(order.groups) - len(groups)
            _log.warning("groups did not come in time", batch=order.batch_id, missing=missing, limit_s=limit)
        return [groups[spec.group_id] for spec in order.groups if spec.group_id in groups]
