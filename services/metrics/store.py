"""Queries of metrics. Guaranteed: a point of an older epoch never replaces one of a newer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import RunId
from services.metrics.tables import PointRow, RolloutCountRow, RunRow

MAX_ACTIVE_RUNS = 1000
"""Runs that Prometheus sees at most: each is a label."""


@dataclass(frozen=True)
class Selection:
    """Which points: None sets no bound."""

    run_id: RunId
    keys: Sequence[str] | None = None
    from_step: int | None = None
    to_step: int | None = None
    since: datetime | None = None
    until: datetime | None = None


class Point(NamedTuple):
    """A value of a metric at a step."""

    key: str
    step: int
    value: float
    at: datetime


class MetricsStore:
    """Points and the runs that they belong to, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        postgres = session.get_bind().dialect.name == "postgresql"
        self._insert = postgresql.insert if postgres else sqlite.insert

    async def run(self, run_id: RunId) -> RunRow | None:
        """A run that has points."""
        return await self._session.get(RunRow, run_id)

    async def add_run(self, run: RunRow) -> None:
        """A new run."""
        self._session.add(run)
        await self._session.flush()

    async def keep(
        self, run_id: RunId, step: int, epoch: int, at: datetime, values: Mapping[str, float]
    ) -> None:
        """Store the points of a step."""
        if not values:
            return
        rows = [
            {"run_id": run_id, "key": key, "step": step, "epoch": epoch, "value": value, "at": at}
            for key, value in values.items()
        ]
        # The rows go beside the statement, not into it: one text for any number of metrics, prepared once.
        insert = self._insert(PointRow)
        changed = {name: insert.excluded[name] for name in ("epoch", "value", "at")}
        await self._session.execute(
            insert.on_conflict_do_update(
                index_elements=["run_id", "key", "step"],
                set_=changed,
                where=PointRow.epoch <= insert.excluded["epoch"],
            ),
            rows,
        )

    async def forget_after(self, run_id: RunId, step: int, epoch: int) -> None:
        """Drop the points behind a step that epochs before `epoch` made: they are being made again."""
        await self._session.execute(
            delete(PointRow).where(PointRow.run_id == run_id, PointRow.step > step, PointRow.epoch < epoch)
        )

    async def points(self, selection: Selection) -> Sequence[Point]:
        """Points by key and step."""
        columns = (PointRow.key, PointRow.step, PointRow.value, PointRow.at)
        query = select(*columns).where(PointRow.run_id == selection.run_id)
        if selection.keys is not None:
            query = query.where(PointRow.key.in_(selection.keys))
        if selection.from_step is not None:
            query = query.where(PointRow.step >= selection.from_step)
        if selection.to_step is not None:
            query = query.where(PointRow.step <= selection.to_step)
        if selection.since is not None:
            query = query.where(PointRow.at >= selection.since)
        if selection.until is not None:
            query = query.where(PointRow.at <= selection.until)
        rows = await self._session.execute(query.order_by(PointRow.key, PointRow.step))
        return [Point(*row) for row in rows.all()]

    async def end(self, run_id: RunId) -> None:
        """The run has ended: Prometheus shows it no more."""
        await self._session.execute(update(RunRow).where(RunRow.run_id == run_id).values(active=False))

    async def active_runs(self) -> Sequence[RunRow]:
        """Runs that are at work."""
        query = select(RunRow).where(RunRow.active).order_by(RunRow.run_id.desc()).limit(MAX_ACTIVE_RUNS)
        return (await self._session.scalars(query)).all()

    async def count_rollout(self, status: str) -> None:
        """One more rollout with a status."""
        insert = self._insert(RolloutCountRow).values(status=status, count=1)
        await self._session.execute(
            insert.on_conflict_do_update(index_elements=["status"], set_={"count": RolloutCountRow.count + 1})
        )

    async def rollout_counts(self) -> Mapping[str, int]:
        """Rollouts by status."""
        return {row.status: row.count for row in (await self._session.scalars(select(RolloutCountRow))).all()}
