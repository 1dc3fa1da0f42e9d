"""Which groups this replica runs, as the database knows it.

Guaranteed here: a group is run by one replica at a time; a replica that is gone loses its groups after `CLAIM_S`, and
they start again with fresh rollout ids. What a replica says of a group that it no longer runs changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from libs.common.clock import Clock
from libs.common.contracts.rollouts import BatchRequested
from libs.common.identifiers import GroupId, RolloutId
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.rollout.facts import rollout_failed
from services.rollout.outcomes import new_row, untold
from services.rollout.plans import GroupClaim, Seat
from services.rollout.store import RolloutStore
from services.rollout.tables import GroupRow, RolloutRow

CLAIM_S = 15.0
RENEW_S = CLAIM_S / 3
INTERRUPTED = "it was interrupted: the broker that ran it was restarted; another rollout was run in its place"

Uow = UnitOfWork[RolloutStore]


class Claims:
    """Claims of one replica; `owner` is its address."""

    def __init__(self, units: UnitsOfWork[RolloutStore], clock: Clock, owner: str) -> None:
        self._units = units
        self._clock = clock
        self._owner = owner

    async def take(self, places: int) -> list[GroupClaim]:
        """Claim waiting groups, oldest first, with at most `places` rollouts together; a larger group comes alone."""
        async with self._units.read() as store:
            if not await store.anything_to_run(self._clock.now()):
                return []
        async with self._units.begin() as uow:
            found = await uow.store.groups_to_run(uow.now(), max(1, places))
            groups = _that_fit(found, places)
            if not groups:
                return []
            ids = [group.group_id for group in groups]
            gone = {group.group_id for group in groups if group.state == "running"}
            await uow.store.claim(ids, self._owner, uow.now() + timedelta(seconds=CLAIM_S))
            rollouts = list(await uow.store.open_rollouts(ids))
            batches = {
                row.batch_id: BatchRequested.model_validate_json(row.request_json)
                for row in await uow.store.batches({group.batch_id for group in groups})
            }
            seats = await _seats(uow, groups, rollouts, batches, gone)
            await uow.store.start_rollouts(ids)
        return [
            GroupClaim(
                batches[group.batch_id],
                GroupId(group.group_id),
                group.row_index,
                tuple(sorted(seats[group.group_id], key=lambda seat: seat.sample_index)),
            )
            for group in groups
        ]

    async def renew(self, group_ids: Collection[GroupId]) -> set[GroupId]:
        """Those of the groups that are still this replica's."""
        async with self._units.begin() as uow:
            until = uow.now() + timedelta(seconds=CLAIM_S)
            return await uow.store.renew_claims(group_ids, self._owner, until)

    async def hand_back(self, *, everybodys: bool = False) -> None:
        """Let other replicas claim this one's groups at once, or everybody's where no other replica lives."""
        async with self._units.begin() as uow:
            await uow.store.release_claims(None if everybodys else self._owner)


def _that_fit(groups: Sequence[GroupRow], places: int) -> list[GroupRow]:
    taken: list[GroupRow] = []
    for group in groups:
        if taken and group.n_samples > places:
            break
        taken.append(group)
        places -= group.n_samples
    return taken


async def _seats(
    uow: Uow,
    groups: Sequence[GroupRow],
    rollouts: Sequence[RolloutRow],
    batches: dict[str, BatchRequested],
    gone: set[str],
) -> dict[str, list[Seat]]:
    """The seats of each group. A rollout that another replica had begun fails, and a fresh one takes its seat."""
    batch_of = {group.group_id: batches[group.batch_id] for group in groups}
    seats: dict[str, list[Seat]] = {group.group_id: [] for group in groups}
    fresh: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    for row in rollouts:
        if row.status == "pending" or row.group_id not in gone:
            seats[row.group_id].append(Seat(RolloutId(row.id), row.sample_index, row.replacement))
            continue
        batch = batch_of[row.group_id]
        seat = Seat(RolloutId(uow.new_id("rollout")), row.sample_index, row.replacement)
        seats[row.group_id].append(seat)
        fresh.append(new_row(batch, GroupId(row.group_id), row.row_index, seat, uow.now()))
        ended.append({"id": row.id, "status": "failed", "error": INTERRUPTED, "ended_at": uow.now()})
        interrupted = untold(
            RolloutId(row.id), GroupId(row.group_id), row.row_index, row.sample_index, INTERRUPTED
        )
        uow.emit(rollout_failed(batch, interrupted))
    await uow.store.change_rollouts(ended)
    await uow.store.add_rollouts(fresh)
    return seats
