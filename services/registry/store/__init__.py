"""Queries of the registry, one module a thing. Guaranteed: what is asked for by id is looked up with its workspace."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from services.registry.store.checkpoints import CheckpointStore
from services.registry.store.code import CodeStore
from services.registry.store.datasets import DatasetStore
from services.registry.store.models import ModelStore
from services.registry.store.projects import ProjectStore
from services.registry.store.runs import RunStore
from services.registry.store.workspaces import WorkspaceStore


class RegistryStore:
    """Every table of the registry, in one session."""

    def __init__(self, session: AsyncSession) -> None:
        self.workspaces = WorkspaceStore(session)
        self.projects = ProjectStore(session)
        self.code = CodeStore(session)
        self.datasets = DatasetStore(session)
        self.runs = RunStore(session)
        self.checkpoints = CheckpointStore(session)
        self.models = ModelStore(session)


__all__ = ["RegistryStore"]
