"""A scheduler without its loop: a test moves the clock and asks for rounds, and plays attempts on a scripted backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import delete, select

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus.local import LocalBus
from libs.common.clock import ManualClock
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Envelope, Fact
from libs.common.contracts.recipes import ResourceConfig, ResumePoint
from libs.common.contracts.requests import Caller
from libs.common.contracts.runs import RunCancelled, RunFailed, RunQueued
from libs.common.contracts.work import AttemptEnded, Heartbeat, JobQueued, WorkKind
from libs.common.identifiers import JobId, ProjectId, RunId, WorkId, WorkspaceId
from libs.common.migrations import migrate
from libs.common.platform import Platform
from libs.common.settings import Settings
from libs.common.tables import CommonBase, OutboxRow
from libs.common.unit_of_work import UnitsOfWork
from services.scheduler import handlers
from services.scheduler.backends import Backend, Exit, ProcessRef, Start
from services.scheduler.pool import Pool
from services.scheduler.service import MIGRATIONS
from services.scheduler.store import SchedulerStore
from services.scheduler.tables import LeaseRow, NodeRow, QueueRow, SchedulerBase
from tests.support.databases import SwitchedDatabase

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
ORDER = BlobRef(key="runs/r/order.json", size=0, sha256="0" * 64)
WORKSPACE = WorkspaceId("ws_1")
STEP = timedelta(seconds=4)
"""Less than a gap between rounds that says that the process stood still."""
FactT = TypeVar("FactT", bound=Fact)


@dataclass
class Child:
    """One process of the scripted backend. `heeds`: it ends when asked to. `left`: what it started still runs."""

    start: Start
    heeds: bool = True
    code: int | None = None
    left: bool = False
    signals: list[str] = field(default_factory=list[str])


class ScriptedBackend:
    """Processes that a test ends. Keeps the real promises: a killed process is dead at the next look."""

    def __init__(self) -> None:
        self.children: dict[ProcessRef, Child] = {}
        self.refuses = False
        self.heeds = True
        self._numbers = count(100)

    def start(self, start: Start, trainer_url: str) -> ProcessRef:
        """A new process."""
        if self.refuses:
            raise OSError("no more processes")
        process = ProcessRef(next(self._numbers), "1")
        self.children[process] = Child(start, heeds=self.heeds)
        return process

    def alive(self, process: ProcessRef) -> bool:
        """Whether it, or what it left behind, runs; what it left behind is killed by the look."""
        child = self.children.get(process)
        if child is None:
            return False
        left, child.left = child.left and child.code is not None, False
        return child.code is None or left

    def ended(self, process: ProcessRef) -> Exit | None:
        """How it ended."""
        child = self.children.get(process)
        if child is None:
            return Exit(said=False, text="its process is gone")
        if child.code is None:
            return None
        return Exit(said=child.code == 0, text=f"its process ended with status {child.code}")

    def terminate(self, process: ProcessRef) -> None:
        """Ask."""
        child = self.children[process]
        child.signals.append("TERM")
        if child.heeds and child.code is None:
            child.code = -15

    def kill(self, process: ProcessRef) -> None:
        """End."""
        child = self.children[process]
        child.signals.append("KILL")
        if child.code is None:
            child.code = -9

    def of(self, work: str, epoch: int = 1) -> Child:
        """The process of an attempt."""
        return next(c for c in self.children.values() if (c.start.work_id, c.start.epoch) == (work, epoch))

    @property
    def running(self) -> list[tuple[str, int]]:
        """Attempts whose process runs."""
        return [(c.start.work_id, c.start.epoch) for c in self.children.values() if c.code is None]


class World:
    """One scheduler; `another` makes a second one on the same database."""

    def __init__(self, database: SwitchedDatabase, folder: Path, backend: Backend, **settings: Any) -> None:
        chosen = {"trainer_url": "http://trainer", "node_name": "one", **settings}
        self.clock = ManualClock(START)
        self.settings = Settings(data_dir=folder, **chosen)
        self.bus = LocalBus(self.clock)
        self.platform = Platform(
            self.settings, bus=self.bus, blobs=FolderBlobs(folder / "blobs"), clock=self.clock
        )
        self.database = database
        self.backend = backend
        self.units = UnitsOfWork(database, SchedulerStore, source="scheduler", clock=self.clock)
        self.pool = Pool(self.platform, self.units, backend)

    async def join(self, devices: list[str]) -> None:
        """The bus is up, the node is in the pool."""
        await self.bus.start()
        await self.pool.join(devices)

    def another(self, backend: Backend, folder: Path, **settings: Any) -> World:
        """A scheduler on the same database and clock."""
        world = World(self.database, folder, backend, **settings)
        world.clock = self.clock
        world.platform = Platform(world.settings, bus=world.bus, blobs=self.platform.blobs, clock=self.clock)
        world.units = UnitsOfWork(self.database, SchedulerStore, source="scheduler", clock=self.clock)
        world.pool = Pool(world.platform, world.units, backend)
        return world

    async def rounds(self, seconds: float = 0) -> None:
        """Rounds of the pool while time passes, and two at its end."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            self.clock.advance(min(STEP, end - self.clock.now()))
            await self.pool.round()
        await self.pool.round()
        await self.pool.round()

    async def queue(self, run: str = "run_1", *, resume: ResumePoint | None = None, **resources: int) -> None:
        """A run is queued."""
        fact = RunQueued(
            workspace_id=WORKSPACE,
            run_id=RunId(run),
            project_id=ProjectId("prj"),
            order=ORDER,
            resources=ResourceConfig(**resources),
            resume_from=resume,
        )
        async with self.units.begin() as uow:
            await handlers.on_run_queued(fact, uow)

    async def queue_job(self, job: str) -> None:
        """A job is queued."""
        fact = JobQueued(
            workspace_id=WORKSPACE, job_id=JobId(job), kind="merge", order=ORDER, resources=ResourceConfig()
        )
        async with self.units.begin() as uow:
            await handlers.on_job_queued(fact, uow)

    async def cancel(self, run: str = "run_1") -> None:
        """A user cancels."""
        fact = RunCancelled(workspace_id=WORKSPACE, run_id=RunId(run), project_id=ProjectId("prj"))
        async with self.units.begin() as uow:
            await handlers.on_run_ended_by_its_owner(fact, uow)

    async def fail(self, run: str = "run_1") -> None:
        """The registry gives the run up."""
        fact = RunFailed(workspace_id=WORKSPACE, run_id=RunId(run), project_id=ProjectId("prj"), error="x")
        async with self.units.begin() as uow:
            await handlers.on_run_ended_by_its_owner(fact, uow)

    async def say_ended(self, work: str = "run_1", epoch: int = 1, kind: WorkKind = "run") -> None:
        """The trainer states that an attempt ended."""
        fact = AttemptEnded(
            workspace_id=WORKSPACE, work_id=WorkId(work), work_kind=kind, epoch=epoch, outcome="completed"
        )
        async with self.units.begin() as uow:
            await handlers.on_attempt_ended(fact, uow)

    async def beat(self, work: str = "run_1", epoch: int = 1) -> None:
        """The trainer passes a heartbeat on."""
        async with self.units.begin() as uow:
            request = Heartbeat(work_id=WorkId(work), epoch=epoch)
            await handlers.heartbeat(request, Caller(kind="service", name="trainer"), uow)

    async def stated(self, kind: type[FactT]) -> list[FactT]:
        """Facts of a kind, oldest first."""
        async with self.database.read() as session:
            rows = (await session.scalars(select(OutboxRow).order_by(OutboxRow.seq))).all()
        facts = [Envelope.model_validate_json(row.envelope).fact() for row in rows]
        return [fact for fact in facts if isinstance(fact, kind)]

    async def leases(self) -> list[LeaseRow]:
        """Every lease that ever was."""
        async with self.database.read() as session:
            return list((await session.scalars(select(LeaseRow).order_by(LeaseRow.granted_at))).all())

    async def states(self) -> dict[tuple[str, int], str]:
        """States of leases by work and epoch."""
        return {(lease.work_id, lease.epoch): lease.state for lease in await self.leases()}

    async def waiting(self) -> dict[str, str]:
        """Why each waiting work waits."""
        async with self.database.read() as session:
            return {row.work_id: row.reason for row in (await session.scalars(select(QueueRow))).all()}

    async def nodes(self) -> dict[str, str]:
        """States of nodes by name."""
        async with self.database.read() as session:
            return {row.name: row.state for row in (await session.scalars(select(NodeRow))).all()}


@asynccontextmanager
async def scheduler_world(
    url: str, folder: Path, *, devices: tuple[str, ...] = ("cpu:0",), **settings: Any
) -> AsyncGenerator[World]:
    """A scheduler on an empty database, its node in the pool."""
    database = SwitchedDatabase(url, "scheduler")
    await migrate(database, MIGRATIONS)
    async with database.begin() as session:
        for table in (*SchedulerBase.metadata.sorted_tables, *CommonBase.metadata.sorted_tables):
            await session.execute(delete(table))
    world = World(database, folder, ScriptedBackend(), **settings)
    await world.join(list(devices))
    try:
        yield world
    finally:
        await world.bus.aclose()
        await database.aclose()
