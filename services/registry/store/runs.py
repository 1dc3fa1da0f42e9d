"""Runs and their transitions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.contracts.runs import TERMINAL, RunStatus
from libs.common.identifiers import ProjectId, RunId, WorkspaceId
from services.registry.store.paging import PageOf, page_by_id
from services.registry.tables import RunRow, TransitionRow

_ACTIVE = RunRow.status.not_in(sorted(TERMINAL))


class RunStore:
    """Runs, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: RunRow) -> None:
        """A new run."""
        self._session.add(row)
        await self._session.flush()

    async def get(self, workspace_id: WorkspaceId, run_id: RunId, *, lock: bool = False) -> RunRow | None:
        """A run of a workspace; `lock` keeps it from changing until the commit."""
        query = select(RunRow).where(RunRow.id == run_id, RunRow.workspace_id == workspace_id)
        return await self._session.scalar(query.with_for_update() if lock else query)

    async def for_change(self, run_id: str) -> RunRow | None:
        """A run that a fact is about, locked: facts of scheduler and trainer are handled one after the other."""
        return await self._session.get(RunRow, run_id, with_for_update=True)

    async def page(
        self,
        workspace_id: WorkspaceId,
        *,
        project_id: ProjectId | None,
        status: RunStatus | None,
        limit: int,
        cursor: str | None,
    ) -> PageOf[RunRow]:
        """Runs of a workspace, by project and status where given."""
        query = select(RunRow).where(RunRow.workspace_id == workspace_id)
        if project_id is not None:
            query = query.where(RunRow.project_id == project_id)
        if status is not None:
            query = query.where(RunRow.status == status)
        return await page_by_id(self._session, query, RunRow.id, limit=limit, cursor=cursor)

    async def active_of_project(self, project_id: str) -> Sequence[str]:
        """Ids of runs of the project that have not ended, at most ten."""
        query = select(RunRow.id).where(RunRow.project_id == project_id, _ACTIVE)
        return (await self._session.scalars(query.limit(10))).all()

    async def active_on_dataset(self, dataset_id: str) -> Sequence[str]:
        """Ids of runs that have not ended and train or validate on the dataset, at most ten."""
        uses = (RunRow.dataset_id == dataset_id) | (RunRow.validation_dataset_id == dataset_id)
        return (await self._session.scalars(select(RunRow.id).where(uses, _ACTIVE).limit(10))).all()

    async def add_transition(self, row: TransitionRow) -> None:
        """The next change of a run's status; its position follows from those before. The run is locked."""
        count = select(func.count()).where(TransitionRow.run_id == row.run_id)
        row.position = await self._session.scalar(count) or 0
        self._session.add(row)
        await self._session.flush()

    async def transitions(self, run_id: RunId) -> Sequence[TransitionRow]:
        """The history of a run's status, oldest first."""
        query = select(TransitionRow).where(TransitionRow.run_id == run_id)
        return (await self._session.scalars(query.order_by(TransitionRow.position))).all()
