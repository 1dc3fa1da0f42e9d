"""Base models, output models and the jobs that make them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.identifiers import ModelId, RunId, WorkspaceId
from services.registry.store.paging import PageOf, add_unique, page_by_id
from services.registry.tables import BaseModelRow, JobRow, ModelRow

_LIVE = ModelRow.status != "error"


class ModelStore:
    """Models and jobs, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add_base(self, row: BaseModelRow) -> None:
        """A new base model.

        Raises:
            Conflict: the name is taken in the workspace.
        """
        await add_unique(
            self._session, row, f"a base model is called {row.name!r} already; choose another name"
        )

    async def base(self, workspace_id: WorkspaceId, model_id: ModelId) -> BaseModelRow | None:
        """A base model of a workspace."""
        query = select(BaseModelRow).where(
            BaseModelRow.id == model_id, BaseModelRow.workspace_id == workspace_id
        )
        return await self._session.scalar(query)

    async def base_by_id_or_name(self, workspace_id: WorkspaceId, text: str) -> BaseModelRow | None:
        """A base model of a workspace by id, else by name; of a name the one that did not fail."""
        query = select(BaseModelRow).where(
            BaseModelRow.workspace_id == workspace_id, (BaseModelRow.id == text) | (BaseModelRow.name == text)
        )
        best_first = query.order_by(BaseModelRow.status == "error", BaseModelRow.id.desc()).limit(1)
        return await self._session.scalar(best_first)

    async def base_for_change(self, model_id: ModelId) -> BaseModelRow | None:
        """A base model that the registry itself works on, locked."""
        return await self._session.get(BaseModelRow, model_id, with_for_update=True)

    async def page_of_bases(
        self, workspace_id: WorkspaceId, *, limit: int, cursor: str | None
    ) -> PageOf[BaseModelRow]:
        """Base models of a workspace."""
        query = select(BaseModelRow).where(BaseModelRow.workspace_id == workspace_id)
        return await page_by_id(self._session, query, BaseModelRow.id, limit=limit, cursor=cursor)

    async def add(self, row: ModelRow) -> None:
        """A new output model.

        Raises:
            Conflict: the checkpoint is being merged by another call.
        """
        await add_unique(self._session, row, f"checkpoint {row.checkpoint_id} is being merged already")

    async def get(self, workspace_id: WorkspaceId, model_id: str, *, lock: bool = False) -> ModelRow | None:
        """An output model of a workspace; `lock` keeps it from changing until the commit."""
        query = select(ModelRow).where(ModelRow.id == model_id, ModelRow.workspace_id == workspace_id)
        return await self._session.scalar(query.with_for_update() if lock else query)

    async def of_checkpoint(self, checkpoint_id: str) -> ModelRow | None:
        """The model that a checkpoint was, or is being, merged into."""
        return await self._session.scalar(
            select(ModelRow).where(ModelRow.checkpoint_id == checkpoint_id, _LIVE)
        )

    async def ids_by_checkpoint(self, checkpoint_ids: Sequence[str]) -> dict[str, str]:
        """Ids of merged models by checkpoint."""
        query = select(ModelRow.checkpoint_id, ModelRow.id).where(
            ModelRow.checkpoint_id.in_(checkpoint_ids), _LIVE
        )
        return dict((await self._session.execute(query)).all())

    async def page(
        self, workspace_id: WorkspaceId, *, run_id: RunId | None, limit: int, cursor: str | None
    ) -> PageOf[ModelRow]:
        """Output models of a workspace, by run where given."""
        query = select(ModelRow).where(ModelRow.workspace_id == workspace_id)
        if run_id is not None:
            query = query.where(ModelRow.run_id == run_id)
        return await page_by_id(self._session, query, ModelRow.id, limit=limit, cursor=cursor)

    async def add_job(self, row: JobRow) -> None:
        """A new job."""
        self._session.add(row)
        await self._session.flush()

    async def job(self, workspace_id: WorkspaceId, job_id: str) -> JobRow | None:
        """A job of a workspace."""
        query = select(JobRow).where(JobRow.id == job_id, JobRow.workspace_id == workspace_id)
        return await self._session.scalar(query)

    async def job_for_change(self, job_id: str) -> JobRow | None:
        """A job that a fact is about, locked."""
        return await self._session.get(JobRow, job_id, with_for_update=True)

    async def last_job(self, model_id: str, kind: str) -> JobRow | None:
        """The newest job of a kind for a model."""
        query = select(JobRow).where(JobRow.model_id == model_id, JobRow.kind == kind)
        return await self._session.scalar(query.order_by(JobRow.id.desc()).limit(1))
