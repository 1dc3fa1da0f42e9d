"""Queries of the broker.

Guaranteed: a move of a group or rollout happens only out of a state that allows it, whoever else writes; a group runs
in one replica at a time. A batch's rollouts are written by a few statements, however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.rollouts import Phase
from libs.common.identifiers import GroupId, RolloutId, RunId, WorkspaceId
from services.rollout.states import groups_that_may, rollouts_that_may
from services.rollout.tables import BatchRow, FenceRow, GroupRow, RolloutBase, RolloutRow

Values = Mapping[str, Any]
"""Columns of one row by name."""


class RolloutStore:
    """Fences, batches, groups and rollouts in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def fence_for_change(self, run_id: RunId) -> FenceRow:
        """The run's fence, locked: a batch is not let in while its epoch is being ended."""
        row = {"run_id": run_id, "newest": 0, "over_through": 0}
        await self._insert_once(FenceRow, row)
        fence = await self._session.get(FenceRow, run_id, with_for_update=True, populate_existing=True)
        assert fence is not None
        return fence

    async def add_batch(self, batch: Values, groups: Sequence[Values], rollouts: Sequence[Values]) -> bool:
        """Whether the batch was new; its groups and rollouts are then written too."""
        if not await self._insert_once(BatchRow, batch):
            return False
        await self._session.execute(insert(GroupRow), [dict(row) for row in groups])
        await self.add_rollouts(rollouts)
        return True

    async def add_rollouts(self, rollouts: Sequence[Values]) -> None:
        """New rollouts."""
        if rollouts:
            await self._session.execute(insert(RolloutRow), [dict(row) for row in rollouts])

    async def batches(self, batch_ids: Collection[str]) -> Sequence[BatchRow]:
        """Batches by id."""
        return (await self._session.scalars(select(BatchRow).where(BatchRow.batch_id.in_(batch_ids)))).all()

    async def anything_to_run(self, now: datetime) -> bool:
        """Whether there is a group that no living replica runs."""
        return await self._session.scalar(_to_run(now).limit(1)) is not None

    async def groups_to_run(self, now: datetime, limit: int) -> Sequence[GroupRow]:
        """Groups that no living replica runs, oldest first, locked; those that another replica looks at are left out."""
        query = _to_run(now).limit(limit).with_for_update(skip_locked=True)
        return (await self._session.scalars(query)).all()

    async def open_rollouts(self, group_ids: Collection[str]) -> Sequence[RolloutRow]:
        """The rollouts of groups that have not ended."""
        query = select(RolloutRow).where(
            RolloutRow.group_id.in_(group_ids), RolloutRow.status.in_(rollouts_that_may("fail"))
        )
        return (await self._session.scalars(query.order_by(RolloutRow.id))).all()

    async def claim(self, group_ids: Collection[str], owner: str, until: datetime) -> None:
        """The groups are run by `owner`."""
        await self._session.execute(
            update(GroupRow)
            .where(GroupRow.group_id.in_(group_ids))
            .values(state="running", owner=owner, claimed_until=until)
        )

    async def start_rollouts(self, group_ids: Collection[str]) -> None:
        """Rollouts of the groups that were never started run from now on."""
        await self._session.execute(
            update(RolloutRow)
            .where(RolloutRow.group_id.in_(group_ids), RolloutRow.status.in_(rollouts_that_may("start")))
            .values(status="running")
        )

    async def renew_claims(self, group_ids: Collection[GroupId], owner: str, until: datetime) -> set[GroupId]:
        """Those of the groups that the replica still runs; it runs them for so much longer."""
        held = await self._session.scalars(
            update(GroupRow)
            .where(GroupRow.group_id.in_(group_ids), GroupRow.owner == owner, GroupRow.state == "running")
            .values(claimed_until=until)
            .returning(GroupRow.group_id)
        )
        return {GroupId(group_id) for group_id in held}

    async def release_claims(self, owner: str | None = None) -> None:
        """Groups of a replica that is gone (None: of all) can be claimed at once."""
        statement = update(GroupRow).where(GroupRow.state == "running").values(claimed_until=None)
        await self._session.execute(statement if owner is None else statement.where(GroupRow.owner == owner))

    async def end_group(self, group_id: GroupId, owner: str, state: str, parcel_json: str) -> bool:
        """Whether the replica still ran the group: its rollouts have ended then, and the group is `state`."""
        ended = await self._session.scalar(
            update(GroupRow)
            .where(
                GroupRow.group_id == group_id,
                GroupRow.owner == owner,
                GroupRow.state.in_(groups_that_may("sampled")),
            )
            .values(state=state, parcel_json=parcel_json, owner=None, claimed_until=None)
            .returning(GroupRow.group_id)
        )
        return ended is not None

    async def complete_group(self, group_id: GroupId, parcel_json: str) -> bool:
        """Whether the group waited for its rewards."""
        done = await self._session.scalar(
            update(GroupRow)
            .where(GroupRow.group_id == group_id, GroupRow.state.in_(groups_that_may("scored")))
            .values(state="completed", parcel_json=parcel_json)
            .returning(GroupRow.group_id)
        )
        return done is not None

    async def change_rollouts(self, changes: Sequence[Values]) -> None:
        """Set columns of rollouts by id, in one statement; every element has the same columns."""
        if changes:
            await self._session.execute(update(RolloutRow), [dict(change) for change in changes])

    async def abandon(self, run_id: RunId, through_epoch: int, why: str, at: datetime) -> None:
        """End whatever of the run's epochs through that one has not ended."""
        await self._session.execute(
            update(GroupRow)
            .where(
                GroupRow.run_id == run_id,
                GroupRow.epoch <= through_epoch,
                GroupRow.state.in_(groups_that_may("abandon")),
            )
            .values(state="abandoned", owner=None, claimed_until=None)
        )
        await self._session.execute(
            update(RolloutRow)
            .where(
                RolloutRow.run_id == run_id,
                RolloutRow.epoch <= through_epoch,
                RolloutRow.status.in_(rollouts_that_may("abandon")),
            )
            .values(status="failed", error=why, ended_at=at)
            .execution_options(synchronize_session=False)
        )

    async def group(self, group_id: str) -> GroupRow | None:
        """A group."""
        return await self._session.scalar(select(GroupRow).where(GroupRow.group_id == group_id))

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        """A rollout."""
        return await self._session.get(RolloutRow, rollout_id)

    async def rollouts(
        self,
        workspace_id: WorkspaceId,
        run_id: RunId,
        *,
        step: int | None,
        phase: Phase | None,
        status: str | None,
        with_tool_calls: bool,
        before: str | None,
        limit: int,
    ) -> Sequence[RolloutRow]:
        """Rollouts of a run, newest first, that are older than `before`."""
        query = select(RolloutRow).where(RolloutRow.run_id == run_id, RolloutRow.workspace_id == workspace_id)
        for column, value in (
            (RolloutRow.step, step),
            (RolloutRow.phase, phase),
            (RolloutRow.status, status),
        ):
            query = query if value is None else query.where(column == value)
        if with_tool_calls:
            query = query.where(RolloutRow.tool_calls > 0)
        if before is not None:
            query = query.where(RolloutRow.id < before)
        return (await self._session.scalars(query.order_by(RolloutRow.id.desc()).limit(limit))).all()

    async def _insert_once(self, table: type[RolloutBase], row: Values) -> bool:
        dialect = self._session.get_bind().dialect.name
        upsert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        key = next(iter(row))
        statement = upsert(table).values(dict(row)).on_conflict_do_nothing().returning(getattr(table, key))
        return (await self._session.execute(statement)).scalar_one_or_none() is not None


def _to_run(now: datetime) -> Select[GroupRow]:
    return (
        select(GroupRow)
        .where(
            GroupRow.state.in_(groups_that_may("claim")),
            or_(GroupRow.claimed_until.is_(None), GroupRow.claimed_until < now),
        )
        .order_by(GroupRow.seq)
    )
