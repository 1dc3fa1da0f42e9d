"""A registry service over a bus, a database and blobs, with the peers that a test plays itself."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus import QueueSpec
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.code import GetSync, SyncRepository, SyncView
from libs.common.contracts.datasets import CompleteUpload, CreateDataset, DatasetView, GetDataset
from libs.common.contracts.envelope import Envelope, Fact, fact_types
from libs.common.contracts.models import BaseModelView, GetBaseModel, RegisterBaseModel
from libs.common.contracts.requests import Caller, ReplyT, Request
from libs.common.contracts.runs import CreateRun, GetRun, RunView
from libs.common.contracts.work import (
    AttemptEnded,
    AttemptStarted,
    AttemptStepped,
    CheckpointSaved,
    LeaseGranted,
    LeaseLost,
)
from libs.common.contracts.workspaces import (
    ConnectRepository,
    CreateKey,
    CreateProject,
    CreateWorkspace,
    ProjectView,
)
from libs.common.identifiers import CheckpointId, KeyId, LeaseId, NodeId, RunId, WorkId, WorkspaceId
from libs.common.platform import Platform
from libs.common.running import running
from libs.common.settings import Settings
from services.registry.service import build
from tests.registry.dataset_files import GOOD, jsonl
from tests.registry.git_repositories import REWARD, Repository
from tests.support.databases import create_postgres_database, drop_postgres_database

DEADLINE_S = 30.0
ROOT = Caller(kind="root", name="root")
SERVICE = Caller(kind="service", name="gateway")
FactT = TypeVar("FactT", bound=Fact)
Column = Literal["sqlite", "postgresql"]


async def until(condition: Callable[[], Awaitable[object]], what: str) -> Any:
    """Wait until a condition gives something true, with a deadline."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (result := await condition()):  # noqa: ASYNC110 - any condition, not an event of ours
                await asyncio.sleep(0.01)
            return result
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_S} s: {what}") from None


class World:
    """What a test sees and says."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.folder = folder
        self.heard: list[Fact] = []
        self._count = itertools.count()

    async def ask(self, request: Request[ReplyT], caller: Caller, **options: Any) -> ReplyT:
        return await self.platform.ask(request, caller, **options)

    def facts(self, kind: type[FactT], about: str) -> list[FactT]:
        """Facts of a kind that the registry stated about a workspace or a subject, oldest first."""
        return [
            fact
            for fact in self.heard
            if isinstance(fact, kind) and about in (fact.workspace_id, fact.subject)
        ]

    async def fact(self, kind: type[FactT], about: str, number: int = 1) -> FactT:
        """The n-th of them, once it is stated."""

        async def there() -> bool:
            return len(self.facts(kind, about)) >= number

        await until(there, f"{number} × {kind.__name__} about {about}")
        return self.facts(kind, about)[number - 1]

    async def state(self, fact: Fact, *, source: str = "trainer") -> None:
        """Another service states a fact."""
        envelope = Envelope.wrap(
            fact,
            id=f"evt_{next(self._count)}",
            source=source,
            time=self.platform.clock.now(),
            traceparent=None,
        )
        await (await self.platform.bus.publish(envelope))

    async def listen(self) -> None:
        """Hear every fact that the registry states."""

        async def hear(envelope: Envelope, _delivery: int) -> None:
            if envelope.source == "/osmosis/registry":
                self.heard.append(envelope.fact())

        async def bury(envelope: Envelope, _deliveries: int, error: str) -> None:
            raise AssertionError(f"{envelope.type} died: {error}")

        every = tuple(sorted({kind.KEY for kind in fact_types().values()}))
        await self.platform.bus.consume(QueueSpec("test.facts", every), hear, bury)

    async def team(self) -> Team:
        """A new workspace with a key."""
        number = next(self._count)
        workspace = await self.ask(CreateWorkspace(name=f"team-{number}"), ROOT)
        digest = hashlib.sha256(f"key {number}".encode()).hexdigest()
        key = CreateKey(
            workspace=workspace.id,
            key_id=KeyId(f"key_{number}"),
            digest=digest,
            prefix="osm_x",
            description="d",
        )
        await self.ask(key, ROOT)
        caller = Caller(kind="key", workspace_id=workspace.id, key_id=key.key_id)
        return Team(self, workspace.id, caller, digest)


class Team:
    """A workspace, and what its members do."""

    def __init__(self, world: World, workspace: WorkspaceId, caller: Caller, digest: str) -> None:
        self.world = world
        self.workspace = workspace
        self.caller = caller
        self.digest = digest
        self._count = itertools.count()

    async def ask(self, request: Request[ReplyT], **options: Any) -> ReplyT:
        return await self.world.ask(request, self.caller, **options)

    def facts(self, kind: type[FactT]) -> list[FactT]:
        return self.world.facts(kind, self.workspace)

    async def fact(self, kind: type[FactT], number: int = 1) -> FactT:
        return await self.world.fact(kind, self.workspace, number)

    async def project(self) -> ProjectView:
        return await self.ask(CreateProject(name=f"project-{next(self._count)}"))

    async def sync(self, project: ProjectView, repository: Repository) -> SyncView:
        """Connect and sync, and wait for the end."""
        await self.ask(ConnectRepository(project_id=project.id, url=repository.url))
        started = await self.ask(SyncRepository(project_id=project.id))

        async def ended() -> SyncView | None:
            sync = await self.ask(GetSync(sync_id=started.id))
            return sync if sync.status in ("success", "failed") else None

        return await until(ended, "the sync's end")

    async def dataset(
        self, content: bytes = jsonl(*[GOOD] * 4), file_name: str = "rows.jsonl"
    ) -> DatasetView:
        """Upload, and wait for the validation's end."""
        dataset = await self.ask(CreateDataset(file_name=file_name))
        blob = await self.world.platform.blobs.put_bytes(f"uploads/{dataset.id}/file", content)
        await self.ask(CompleteUpload(dataset_id=dataset.id, content=blob))

        async def ended() -> DatasetView | None:
            view = await self.ask(GetDataset(dataset_id=dataset.id))
            return view if view.status in ("uploaded", "error") else None

        return await until(ended, "the validation's end")

    async def base_model(self, name: str = "tiny", files: Mapping[str, str] | None = None) -> BaseModelView:
        """Put a folder into the model store, register it, wait for its copy."""
        folder = self.world.platform.settings.model_store / name
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(parents=True)
        contents = (
            {"config.json": '{"model_type": "llama"}', "model.safetensors": "w"} if files is None else files
        )
        for file, text in contents.items():
            (folder / file).write_text(text)
        model = await self.ask(RegisterBaseModel(name=name, folder=name, licence="mit"))

        async def ended() -> BaseModelView | None:
            view = await self.ask(GetBaseModel(model_id=model.id))
            return view if view.status in ("ready", "error") else None

        return await until(ended, "the copy's end")

    async def ready(self) -> Ready:
        """All that a run needs."""
        project = await self.project()
        repository = Repository(self.world.folder / f"repository-{project.id}")
        repository.commit({"reward_fn/compute.py": REWARD})
        sync = await self.sync(project, repository)
        assert sync.status == "success", sync.errors
        return Ready(self, project, await self.dataset(), await self.base_model(), repository)


class Ready:
    """A project with code, a dataset and a base model."""

    def __init__(
        self,
        team: Team,
        project: ProjectView,
        dataset: DatasetView,
        model: BaseModelView,
        repository: Repository,
    ) -> None:
        self.team = team
        self.project = project
        self.dataset = dataset
        self.model = model
        self.repository = repository

    def config(self, **changes: Any) -> dict[str, Any]:
        return {
            "base_model": self.model.name,
            "dataset": self.dataset.id,
            "rewards": [{"name": "compute.exact"}],
        } | changes

    async def run(self, **changes: Any) -> Run:
        view = await self.team.ask(CreateRun(project_id=self.project.id, config=self.config(**changes)))
        return Run(self.team, view.id)


class Run:
    """A run, and the scheduler and trainer that a test plays for it."""

    def __init__(self, team: Team, run_id: RunId) -> None:
        self.team = team
        self.world = team.world
        self.id = run_id
        self.work_id = WorkId(run_id)

    def facts(self, kind: type[FactT]) -> list[FactT]:
        return self.world.facts(kind, self.id)

    async def fact(self, kind: type[FactT], number: int = 1) -> FactT:
        return await self.world.fact(kind, self.id, number)

    async def view(self) -> RunView:
        return await self.team.ask(GetRun(run_id=self.id))

    async def becomes(self, status: str) -> RunView:
        async def there() -> RunView | None:
            view = await self.view()
            return view if view.status == status else None

        return await until(there, f"the run is {status}")

    async def grant(self, epoch: int, kind: Literal["run", "job"] = "run") -> None:
        fact = LeaseGranted(
            workspace_id=self.team.workspace,
            lease_id=LeaseId(f"lease_{epoch}"),
            work_id=self.work_id,
            work_kind=kind,
            epoch=epoch,
            node_id=NodeId("node"),
            devices=["cpu:0"],
            order=BlobRef(key="k", size=0, sha256="0" * 64),
        )
        await self.world.state(fact, source="scheduler")

    async def lose(self, epoch: int, kind: Literal["run", "job"] = "run") -> None:
        fact = LeaseLost(
            workspace_id=self.team.workspace,
            lease_id=LeaseId(f"lease_{epoch}"),
            work_id=self.work_id,
            work_kind=kind,
            epoch=epoch,
            reason="the process is gone",
        )
        await self.world.state(fact, source="scheduler")

    async def start(self, epoch: int, *, from_step: int = 0) -> None:
        fact = AttemptStarted(
            workspace_id=self.team.workspace,
            work_id=self.work_id,
            work_kind="run",
            epoch=epoch,
            engine_url="http://engine",
            total_steps=10,
            from_step=from_step,
        )
        await self.world.state(fact)

    async def step(
        self, epoch: int, step: int, phase: Literal["train", "validation"] = "train", **metrics: float
    ) -> None:
        fact = AttemptStepped(
            workspace_id=self.team.workspace,
            work_id=self.work_id,
            epoch=epoch,
            step=step,
            total_steps=10,
            phase=phase,
            metrics={key.replace("__", "/"): value for key, value in metrics.items()},
            at=self.world.platform.clock.now(),
        )
        await self.world.state(fact)

    async def save(self, epoch: int, step: int, checkpoint_id: str | None = None) -> CheckpointId:
        name = CheckpointId(checkpoint_id or f"ckpt_{self.id}_{epoch}_{step}")
        content = json.dumps({"kind": "checkpoint", "files": []}).encode()
        fact = CheckpointSaved(
            workspace_id=self.team.workspace,
            checkpoint_id=name,
            run_id=self.id,
            epoch=epoch,
            step=step,
            manifest=await self.world.platform.blobs.put_bytes(
                f"checkpoints/{self.id}/{name}/manifest.json", content
            ),
            size=5,
            metrics={"rollout/raw_reward": 0.5},
        )
        await self.world.state(fact)
        return name

    async def end(
        self, epoch: int, outcome: Literal["completed", "failed", "cancelled", "paused"], **more: Any
    ) -> None:
        kind: Literal["run", "job"] = more.pop("kind", "run")
        fact = AttemptEnded(
            workspace_id=self.team.workspace,
            work_id=self.work_id,
            work_kind=kind,
            epoch=epoch,
            outcome=outcome,
            **more,
        )
        await self.world.state(fact)

    async def running(self, epoch: int = 1) -> RunView:
        await self.grant(epoch)
        await self.start(epoch)
        return await self.becomes("running")


@asynccontextmanager
async def registry_world(column: Column, folder: Path) -> AsyncGenerator[World]:
    """A running registry service."""
    url = "" if column == "sqlite" else await asyncio.to_thread(create_postgres_database)
    settings = Settings(data_dir=folder, database_url=url, git_allow_local=True)
    clock = SystemClock()
    platform = Platform(
        settings=settings, bus=LocalBus(clock), blobs=FolderBlobs(folder / "blobs"), clock=clock
    )
    world = World(platform, folder)
    try:
        async with running(platform, [build]):
            await world.listen()
            yield world
    finally:
        if url:
            await asyncio.to_thread(drop_postgres_database, url)
