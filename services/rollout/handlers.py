"""What the broker does when it hears a fact: batches are let in, epochs are ended, scores complete a group.

Guaranteed here: a repeat changes nothing; a batch of an epoch that is over is not let in; a group is completed once,
and its rollouts with it, in one transaction.
"""

from __future__ import annotations

from libs.common.blobs import BlobStore
from libs.common.consuming import Work
from libs.common.contracts.blobs import Parcel
from libs.common.contracts.rollouts import BatchRequested, GroupScored
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPaused
from libs.common.contracts.trajectories import Group
from libs.common.contracts.work import AttemptEnded, AttemptStarted, LeaseGranted, LeaseLost
from libs.common.identifiers import RolloutId, RunId
from libs.common.parcels import pack, unpack
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.rollout.broker import Broker
from services.rollout.endings import blob_key
from services.rollout.facts import group_completed, rollout_completed
from services.rollout.outcomes import new_row, why_no_reward, with_scores
from services.rollout.plans import Seat
from services.rollout.store import RolloutStore

Uow = UnitOfWork[RolloutStore]
EVERY_EPOCH = 2**31 - 1


class Batches:
    """Lets batches in and ends those that nobody wants any more."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def on_batch_requested(self, fact: BatchRequested, uow: Uow) -> None:
        """Keep the batch with a rollout in every seat, to be run as soon as this is committed."""
        fence = await uow.store.fence_for_change(fact.run_id)
        if fact.epoch <= fence.over_through or not fact.groups:
            return
        fence.newest = max(fence.newest, fact.epoch)
        batch = {
            "batch_id": fact.batch_id,
            "run_id": fact.run_id,
            "epoch": fact.epoch,
            "request_json": fact.model_dump_json(),
            "created_at": uow.now(),
        }
        groups = [
            {
                "group_id": group.group_id,
                "batch_id": fact.batch_id,
                "run_id": fact.run_id,
                "epoch": fact.epoch,
                "row_index": group.row_index,
                "n_samples": fact.n_samples,
                "state": "waiting",
            }
            for group in fact.groups
        ]
        rollouts = [
            new_row(
                fact, group.group_id, group.row_index, Seat(RolloutId(uow.new_id("rollout")), n), uow.now()
            )
            for group in fact.groups
            for n in range(fact.n_samples)
        ]
        if await uow.store.add_batch(batch, groups, rollouts):
            uow.after_commit(self._broker.wake)

    async def on_lease_granted(self, fact: LeaseGranted | AttemptStarted, uow: Uow) -> None:
        """A newer epoch lives: the older ones are over."""
        if fact.work_kind == "run":
            await self._end(RunId(fact.work_id), fact.epoch - 1, "a newer attempt of the run took over", uow)
            await self._note(RunId(fact.work_id), fact.epoch, uow)

    async def on_lease_lost(self, fact: LeaseLost, uow: Uow) -> None:
        """The attempt is dead: nobody waits for its groups."""
        if fact.work_kind == "run":
            await self._end(RunId(fact.work_id), fact.epoch, f"the attempt was lost: {fact.reason}", uow)

    async def on_attempt_ended(self, fact: AttemptEnded, uow: Uow) -> None:
        """The attempt said that it ended."""
        if fact.work_kind == "run":
            await self._end(RunId(fact.work_id), fact.epoch, f"the attempt ended: {fact.outcome}", uow)

    async def on_run_over(self, fact: RunCancelled | RunFailed, uow: Uow) -> None:
        """No attempt of the run will come again."""
        await self._end(fact.run_id, EVERY_EPOCH, f"the run was {_word(fact)}", uow)

    async def on_run_paused(self, fact: RunPaused, uow: Uow) -> None:
        """Every attempt so far is over; a resumed run has a newer one."""
        fence = await uow.store.fence_for_change(fact.run_id)
        await self._end(fact.run_id, fence.newest, "the run was paused", uow)

    async def _note(self, run_id: RunId, epoch: int, uow: Uow) -> None:
        fence = await uow.store.fence_for_change(run_id)
        fence.newest = max(fence.newest, epoch)

    async def _end(self, run_id: RunId, through: int, why: str, uow: Uow) -> None:
        fence = await uow.store.fence_for_change(run_id)
        if through <= fence.over_through:
            return
        fence.over_through = through
        await uow.store.abandon(run_id, through, f"abandoned: {why}", uow.now())
        uow.after_commit(lambda: self._broker.drop(run_id, through))


def _word(fact: RunCancelled | RunFailed) -> str:
    return "cancelled" if isinstance(fact, RunCancelled) else "ended by a failure"


class Scores:
    """Completes groups by what the rewards service said."""

    def __init__(self, units: UnitsOfWork[RolloutStore], blobs: BlobStore) -> None:
        self._units = units
        self._blobs = blobs

    async def on_group_scored(self, fact: GroupScored, work: Work[RolloutStore]) -> None:
        """Store rewards and components, and state each rollout and the group, in one transaction."""
        found = await self._waiting(fact)
        if found is None:
            return
        batch, sampled = found
        group = with_scores(await unpack(self._blobs, sampled, Group), fact.scores)
        parcel = await pack(self._blobs, group, blob_key(group, "completed"))
        scored = [one for one in group.trajectories if one.status == "completed"]
        async with work.finish() as uow:
            if not await uow.store.complete_group(fact.group_id, parcel.model_dump_json()):
                return
            await uow.store.change_rollouts(
                [
                    {
                        "id": one.rollout_id,
                        "status": "completed",
                        "reward": one.reward,
                        "error": why_no_reward(one),
                        "ended_at": uow.now(),
                    }
                    for one in scored
                ]
            )
            for one in scored:
                uow.emit(rollout_completed(batch, one))
            uow.emit(group_completed(batch, fact.group_id, parcel))

    async def _waiting(self, fact: GroupScored) -> tuple[BatchRequested, Parcel[Group]] | None:
        """The group's batch and trajectories, if it waits for these scores."""
        async with self._units.read() as store:
            row = await store.group(fact.group_id)
            if row is None or row.state != "scoring" or row.epoch != fact.epoch or row.parcel_json is None:
                return None
            batch = (await store.batches([row.batch_id]))[0]
        request = BatchRequested.model_validate_json(batch.request_json)
        return request, Parcel[Group].model_validate_json(row.parcel_json)
