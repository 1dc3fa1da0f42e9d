"""Opens the frozen order of an attempt: what its process is told to do when it says hello.

Guaranteed: the recipe that batches refer to is the one in the order, written under one key with the same bytes each
time.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from libs.common.contracts.attempts import Hello
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import Recipe, ResumePoint, TrainOrder, WorkOrder
from libs.common.identifiers import WorkId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitsOfWork
from services.trainer.handlers import know_recipe, live_attempt
from services.trainer.store import TrainerStore

HEARTBEATS_PER_LEASE = 10
"""Heartbeats an attempt sends in the life of a lease: a few may be lost."""

_ORDER: TypeAdapter[WorkOrder] = TypeAdapter(WorkOrder)


async def open_order(
    platform: Platform, units: UnitsOfWork[TrainerStore], work_id: WorkId, epoch: int
) -> Hello:
    """The answer to an attempt's hello.

    Raises:
        NotFound: the lease was not heard of yet.
        Conflict: the attempt is over.
    """
    async with units.begin() as uow:
        attempt = await live_attempt(work_id, epoch, uow)
        reference = BlobRef.model_validate_json(attempt.order_json)
        resume = attempt.resume_json
    order = _ORDER.validate_json(await platform.blobs.get_bytes(reference))
    if isinstance(order, TrainOrder):
        recipe = await _keep_recipe(platform, order.recipe)
        async with units.begin() as uow:
            await know_recipe(work_id, epoch, recipe, uow)
    return Hello(
        order=order,
        resume_from=ResumePoint.model_validate_json(resume) if resume else None,
        heartbeat_s=min(2.0, platform.settings.lease_ttl_s / HEARTBEATS_PER_LEASE),
        lease_ttl_s=platform.settings.lease_ttl_s,
    )


async def _keep_recipe(platform: Platform, recipe: Recipe) -> BlobRef:
    return await platform.blobs.put_bytes(
        f"runs/{recipe.run_id}/recipe.json", recipe.model_dump_json().encode()
    )
