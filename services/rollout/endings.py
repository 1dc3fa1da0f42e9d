"""Stores how a group ended and states it, in one transaction a group."""

from __future__ import annotations

import secrets

from libs.common.blobs import BlobStore
from libs.common.contracts.recipes import Recipe
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.parcels import pack
from libs.common.unit_of_work import UnitsOfWork
from services.rollout.facts import group_completed, group_sampled, rollout_failed
from services.rollout.outcomes import GroupOutcome, ended_columns, new_row
from services.rollout.plans import GroupClaim
from services.rollout.store import RolloutStore


def blob_key(group: Group, what: str) -> str:
    """A fresh key for a group's trajectories: what an earlier life of the group stored is never overwritten."""
    return f"groups/{group.run_id}/{group.group_id}/{what}-{secrets.token_hex(6)}.json"


class Endings:
    """Ends groups that `owner` runs."""

    def __init__(self, units: UnitsOfWork[RolloutStore], blobs: BlobStore, owner: str) -> None:
        self._units = units
        self._blobs = blobs
        self._owner = owner

    async def end(self, claim: GroupClaim, outcome: GroupOutcome, recipe: Recipe | None) -> bool:
        """Whether the group was still this replica's: it then waits for its rewards, or is completed without any.

        `recipe` is None when nothing could be run at all.
        """
        group, batch = outcome.group, claim.batch
        parcel = await pack(self._blobs, group, blob_key(group, "sampled"))
        replaced = {
            str(one.seat.rollout_id): await self._keep(group, one.trajectory) for one in outcome.replaced
        }
        to_score = recipe is not None and not outcome.all_failed
        state = "scoring" if to_score else "completed"
        async with self._units.begin() as uow:
            now = uow.now()
            if not await uow.store.end_group(claim.group_id, self._owner, state, parcel.model_dump_json()):
                return False
            known = {seat.rollout_id for seat in claim.seats}
            seats = [*outcome.seats, *(one.seat for one in outcome.replaced)]
            fresh = [seat for seat in seats if seat.rollout_id not in known]
            await uow.store.add_rollouts(
                [new_row(batch, claim.group_id, claim.row_index, seat, now) for seat in fresh]
            )
            trajectories = [*group.trajectories, *(one.trajectory for one in outcome.replaced)]
            await uow.store.change_rollouts(
                [
                    {**ended_columns(one, now), "trajectory_json": replaced.get(one.rollout_id)}
                    for one in trajectories
                ]
            )
            for one in trajectories:
                if one.status == "failed":
                    uow.emit(rollout_failed(batch, one))
            if to_score and recipe is not None:
                uow.emit(group_sampled(batch, claim.group_id, parcel, recipe))
            else:
                uow.emit(group_completed(batch, claim.group_id, parcel))
        return True

    async def _keep(self, group: Group, trajectory: Trajectory) -> str:
        """A replaced rollout's trajectory, in a parcel of its own."""
        return (await pack(self._blobs, trajectory, blob_key(group, trajectory.rollout_id))).model_dump_json()
