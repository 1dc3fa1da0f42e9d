"""Checkpoints: those that a run keeps, and those that are more than that and whose blobs are to go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.errors import FieldError, Invalid
from libs.common.identifiers import CheckpointId, RunId, WorkspaceId
from services.registry.store.paging import PageOf
from services.registry.tables import CheckpointRow, ModelRow

_KEPT = CheckpointRow.surplus_at.is_(None)


class CheckpointStore:
    """Checkpoints, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def known(self, checkpoint_id: CheckpointId) -> bool:
        """Whether a checkpoint was ever heard of."""
        return await self._session.get(CheckpointRow, checkpoint_id) is not None

    async def add(self, row: CheckpointRow) -> None:
        """A new checkpoint."""
        self._session.add(row)
        await self._session.flush()

    async def get(self, workspace_id: WorkspaceId, checkpoint_id: str) -> CheckpointRow | None:
        """A checkpoint of a workspace."""
        query = select(CheckpointRow).where(
            CheckpointRow.id == checkpoint_id, CheckpointRow.workspace_id == workspace_id, _KEPT
        )
        return await self._session.scalar(query)

    async def last(self, run_id: str) -> CheckpointRow | None:
        """Where a run goes on from: its furthest checkpoint, the newer one of two at a step."""
        query = select(CheckpointRow).where(CheckpointRow.run_id == run_id, _KEPT)
        newest = query.order_by(CheckpointRow.step.desc(), CheckpointRow.id.desc()).limit(1)
        return await self._session.scalar(newest)

    async def page(self, run_id: RunId, *, limit: int, cursor: str | None) -> PageOf[CheckpointRow]:
        """Checkpoints of a run, by step; the cursor is `step.id`.

        Raises:
            Invalid: the cursor is none of ours.
        """
        query = select(CheckpointRow).where(CheckpointRow.run_id == run_id, _KEPT)
        if cursor is not None:
            step, _, checkpoint_id = cursor.partition(".")
            if not step.isdecimal() or len(step) > 12:
                message = "use the next_cursor of the page before"
                raise Invalid("the cursor is not valid", fields=[FieldError("cursor", message)])
            query = query.where(tuple_(CheckpointRow.step, CheckpointRow.id) < (int(step), checkpoint_id))
        order = query.order_by(CheckpointRow.step.desc(), CheckpointRow.id.desc())
        rows = (await self._session.scalars(order.limit(limit + 1))).all()
        shown = rows[:limit]
        return PageOf(shown, f"{shown[-1].step}.{shown[-1].id}" if len(rows) > limit else None)

    async def give_up_surplus(self, run_id: str, keep: int, at: datetime) -> int:
        """Give up what is more than the `keep` furthest checkpoints and not merged; how many those are."""
        kept = (
            select(CheckpointRow.id)
            .where(CheckpointRow.run_id == run_id, _KEPT)
            .order_by(CheckpointRow.step.desc(), CheckpointRow.id.desc())
            .limit(keep)
        )
        merged = select(ModelRow.checkpoint_id).where(ModelRow.run_id == run_id, ModelRow.status != "error")
        surplus = (
            update(CheckpointRow)
            .where(
                CheckpointRow.run_id == run_id,
                _KEPT,
                CheckpointRow.id.not_in(kept),
                CheckpointRow.id.not_in(merged),
            )
            .values(surplus_at=at)
            .returning(CheckpointRow.id)
        )
        return len((await self._session.scalars(surplus)).all())

    async def to_prune(self, limit: int) -> Sequence[CheckpointRow]:
        """Checkpoints whose blobs are to go."""
        query = select(CheckpointRow).where(
            CheckpointRow.surplus_at.is_not(None), CheckpointRow.pruned_at.is_(None)
        )
        return (await self._session.scalars(query.order_by(CheckpointRow.id).limit(limit))).all()

    async def mark_pruned(self, checkpoint_id: str, at: datetime) -> None:
        """The blobs of a checkpoint are gone."""
        await self._session.execute(
            update(CheckpointRow).where(CheckpointRow.id == checkpoint_id).values(pruned_at=at)
        )
