"""Queries of the trainer. Guaranteed: two completions of one batch never share a position, also across replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import BatchId, GroupId, WorkId
from services.trainer.domain import LIVE
from services.trainer.tables import (
    AttemptRow,
    BatchGroupRow,
    BatchRow,
    CheckpointRow,
    StepRow,
    TrainerBase,
    UnwantedWorkRow,
)


class TrainerStore:
    """Attempts and what belongs to them, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def attempt(self, work_id: WorkId, epoch: int) -> AttemptRow | None:
        """The attempt, without a lock."""
        return await self._session.get(AttemptRow, (work_id, epoch))

    async def attempt_for_change(self, work_id: WorkId, epoch: int) -> AttemptRow | None:
        """The attempt, locked: calls of one attempt are handled one after the other, whichever replica takes them."""
        return await self._session.get(AttemptRow, (work_id, epoch), with_for_update=True)

    async def newest_epoch(self, work_id: WorkId) -> int | None:
        """The newest epoch that was granted, None when none was."""
        query = select(func.max(AttemptRow.epoch)).where(AttemptRow.work_id == work_id)
        return await self._session.scalar(query)

    async def live_attempts(self, work_id: WorkId) -> Sequence[AttemptRow]:
        """Attempts of a work that may still speak, locked."""
        query = select(AttemptRow).where(AttemptRow.work_id == work_id, AttemptRow.state.in_(LIVE))
        return (await self._session.scalars(query.with_for_update())).all()

    async def add_attempt(self, attempt: AttemptRow) -> None:
        """A new attempt."""
        self._session.add(attempt)
        await self._session.flush()

    async def mark_unwanted(self, work_id: WorkId, at: datetime) -> None:
        """Remember that nobody wants the work; saying it twice is no error."""
        await self._insert_once(UnwantedWorkRow, {"work_id": work_id, "at": at})

    async def is_unwanted(self, work_id: WorkId) -> bool:
        """Whether nobody wants the work."""
        return await self._session.get(UnwantedWorkRow, work_id) is not None

    async def batch(self, batch_id: BatchId) -> BatchRow | None:
        """A batch as it stands."""
        return await self._session.get(BatchRow, batch_id)

    async def add_batch(self, batch: BatchRow) -> None:
        """A new batch."""
        self._session.add(batch)
        await self._session.flush()

    async def keep_group(self, batch_id: BatchId, group_id: GroupId, parcel_json: str) -> bool:
        """Give a completed group its batch's next position; False when it, or all that was asked for, is here already.

        The batch's row stays locked until the commit, so a position is never visible before a lower one.
        """
        taken = await self._session.scalar(
            update(BatchRow)
            .where(BatchRow.batch_id == batch_id, BatchRow.completed < BatchRow.asked)
            .values(completed=BatchRow.completed + 1)
            .returning(BatchRow.completed)
        )
        row = {"batch_id": batch_id, "position": taken, "group_id": group_id, "parcel_json": parcel_json}
        if taken is None:
            return False
        if await self._insert_once(BatchGroupRow, row):
            return True
        await self._session.execute(
            update(BatchRow).where(BatchRow.batch_id == batch_id).values(completed=BatchRow.completed - 1)
        )
        return False

    async def groups_after(self, batch_id: BatchId, position: int, limit: int) -> Sequence[BatchGroupRow]:
        """Completed groups behind a position, in order."""
        query = (
            select(BatchGroupRow)
            .where(BatchGroupRow.batch_id == batch_id, BatchGroupRow.position > position)
            .order_by(BatchGroupRow.position)
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()

    async def forget_groups(self, work_id: WorkId, epoch: int, through_step: int | None) -> None:
        """Drop the parcels of an attempt's batches up to a step (None: of all): nobody asks for them again."""
        batches = select(BatchRow.batch_id).where(BatchRow.work_id == work_id, BatchRow.epoch == epoch)
        if through_step is not None:
            batches = batches.where(BatchRow.step <= through_step)
        await self._session.execute(delete(BatchGroupRow).where(BatchGroupRow.batch_id.in_(batches)))

    async def record_step(self, work_id: WorkId, epoch: int, step: int, phase: str, at: datetime) -> bool:
        """Whether the report of this step and phase is the attempt's first."""
        row = {"work_id": work_id, "epoch": epoch, "step": step, "phase": phase, "reported_at": at}
        return await self._insert_once(StepRow, row)

    async def record_checkpoint(self, row: Mapping[str, Any]) -> bool:
        """Whether the checkpoint was unknown; `row` has CheckpointRow's columns."""
        return await self._insert_once(CheckpointRow, row)

    async def _insert_once(self, table: type[TrainerBase], row: Mapping[str, Any]) -> bool:
        dialect = self._session.get_bind().dialect.name
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        key = next(iter(row))
        statement = insert(table).values(dict(row)).on_conflict_do_nothing().returning(getattr(table, key))
        return (await self._session.execute(statement)).scalar_one_or_none() is not None
