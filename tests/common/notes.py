"""A small service over the real runtime: it keeps a note of every cancelled job and tells of it as a cancelled run.

A test makes its handlers fail, wait or be slow; everything around them is what the seven services run on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from sqlalchemy import Integer, String, Text, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus import Bus, QueueSpec, RetryPolicy
from libs.common.bus.local import LocalBus
from libs.common.bus.rabbitmq import RabbitBus
from libs.common.clock import SystemClock
from libs.common.consuming import Work
from libs.common.contracts.envelope import Envelope, Fact
from libs.common.contracts.requests import Caller, Reply, Request
from libs.common.contracts.runs import RunCancelled
from libs.common.contracts.work import JobCancelled, LeaseReleased
from libs.common.identifiers import JobId, LeaseId, ProjectId, RunId, WorkId, WorkspaceId
from libs.common.platform import Platform
from libs.common.running import running
from libs.common.service import Service
from libs.common.settings import Settings
from libs.common.unit_of_work import UnitOfWork
from tests.support.bus import amqp_url, delete_from_broker, until

Column = Literal["embedded", "distributed"]
WORKSPACE = WorkspaceId("ws_1")
OWNER = Caller(kind="key", workspace_id=WORKSPACE, key_id="key_1")
OPERATOR = Caller(kind="root")
MIGRATIONS = Path(__file__).parent / "notes_migrations"
SECRET = "a-secret-for-the-tests-only"


class NotesBase(DeclarativeBase):
    """Metadata of the notes."""


class NoteRow(NotesBase):
    """A note."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    subject: Mapped[str] = mapped_column(String(64))
    text: Mapped[str] = mapped_column(Text)


class NoteView(Reply):
    """A note as it is answered."""

    number: int
    text: str


class WriteNote(Request[NoteView], service="notes", name="write", command=True):
    """Keep a note."""

    text: str


class ReadNote(Request[NoteView], service="notes", name="read"):
    """The newest note."""

    text: str = ""


class UnheardOf(Request[NoteView], service="notes", name="unheard_of"):
    """Nobody answers this."""


class Notes:
    """The store."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session

    async def add(self, subject: str, text: str) -> NoteRow:
        """Keep a note."""
        row = NoteRow(subject=subject, text=text)
        self.session.add(row)
        await self.session.flush()
        return row

    async def all(self) -> list[tuple[str, str]]:
        """Every note, oldest first."""
        rows = await self.session.scalars(select(NoteRow).order_by(NoteRow.id))
        return [(row.subject, row.text) for row in rows.all()]


Uow = UnitOfWork[Notes]


async def nothing(*_: object) -> None:
    """A hook that does nothing."""


class World:
    """A platform with the notes; `start` it as often as a test needs lives of it."""

    def __init__(self, folder: Path, database_url: str, bus: Callable[[], Bus], **settings: object) -> None:
        self.folder = folder
        self.new_bus = bus
        self.settings = Settings(data_dir=folder, database_url=database_url, **settings)  # type: ignore[arg-type]
        self.heard: list[Envelope] = []
        self.on_job: Callable[[JobCancelled, Uow], Awaitable[None]] = nothing
        self.on_lease: Callable[[LeaseReleased, Work[Notes]], Awaitable[None]] = nothing
        self.on_write: Callable[[WriteNote, Uow], Awaitable[None]] = nothing
        self.backgrounds: list[Callable[[], Awaitable[None]]] = []
        self.service: Service[Notes]
        self.platform: Platform

    def build(self, platform: Platform) -> Service[Notes]:
        """The service of the next life."""
        service = Service(
            "notes", platform, store=Notes, migrations=MIGRATIONS, retry=RetryPolicy((0.01, 0.02))
        )
        service.on(JobCancelled, self._on_job)
        service.work(LeaseReleased, self._on_lease)
        service.answer(WriteNote, self._write)
        service.answer(ReadNote, self._read)
        for number, loop in enumerate(self.backgrounds):
            service.background(f"loop {number}", loop)  # type: ignore[arg-type]
        return service

    async def _on_job(self, fact: JobCancelled, uow: Uow) -> None:
        await uow.store.add(fact.job_id, "cancelled")
        await self.on_job(fact, uow)
        uow.emit(RunCancelled(workspace_id=WORKSPACE, run_id=RunId(fact.job_id), project_id=ProjectId("prj")))

    async def _on_lease(self, fact: LeaseReleased, work: Work[Notes]) -> None:
        await self.on_lease(fact, work)

    async def _write(self, request: WriteNote, caller: Caller, uow: Uow) -> NoteView:
        row = await uow.store.add("request", request.text)
        await self.on_write(request, uow)
        return NoteView(number=row.id, text=row.text)

    async def _read(self, request: ReadNote, caller: Caller, uow: Uow) -> NoteView:
        return NoteView(number=len(await uow.store.all()), text=request.text)

    @asynccontextmanager
    async def life(self) -> AsyncGenerator[Service[Notes]]:
        """One life of the process."""
        clock = SystemClock()
        self.platform = Platform(
            settings=self.settings, bus=self.new_bus(), blobs=FolderBlobs(self.folder / "blobs"), clock=clock
        )
        async with running(self.platform, [self.build]) as (service,):
            self.service = service
            spec = QueueSpec("test.facts", (RunCancelled.KEY,), retry=RetryPolicy((0.01,)))
            await self.platform.bus.consume(spec, self._hear, self._no_dead_letter)
            yield service

    async def _hear(self, envelope: Envelope, _delivery: int) -> None:
        self.heard.append(envelope)

    async def _no_dead_letter(self, envelope: Envelope, _deliveries: int, error: str) -> None:
        raise AssertionError(f"{envelope.type} died: {error}")

    def envelope(self, fact: Fact, *, id: str | None = None, traceparent: str | None = None) -> Envelope:
        """A fact as another service states it."""
        return Envelope.wrap(
            fact,
            id=id or f"evt_{uuid.uuid4().hex}",
            source="peer",
            time=SystemClock().now(),
            traceparent=traceparent,
        )

    async def state(self, envelope: Envelope) -> None:
        """Publish; returns when the bus has it (over the in-process bus: when it is handled)."""
        await (await self.platform.bus.publish(envelope))

    async def cancel_job(self, name: str = "job_1", *, id: str | None = None) -> Envelope:
        """A job is cancelled."""
        envelope = self.envelope(JobCancelled(workspace_id=WORKSPACE, job_id=JobId(name)), id=id)
        await self.state(envelope)
        return envelope

    async def release_lease(self, name: str = "run_1") -> Envelope:
        """A lease is released."""
        fact = LeaseReleased(
            workspace_id=WORKSPACE,
            lease_id=LeaseId("lease"),
            work_id=WorkId(name),
            work_kind="run",
            epoch=1,
        )
        envelope = self.envelope(fact)
        await self.state(envelope)
        return envelope

    async def notes(self) -> list[tuple[str, str]]:
        """Every note."""
        async with self.service.units.read() as store:
            return await store.all()

    async def told(self, number: int) -> list[str]:
        """Subjects of the facts that the notes stated, once there are so many."""
        await until(lambda: len(self.heard) >= number)
        return [envelope.subject for envelope in self.heard]


@asynccontextmanager
async def notes_world(
    column: Column, folder: Path, postgres_url: str, **settings: object
) -> AsyncGenerator[World]:
    """The notes in either column of the design."""
    if column == "embedded":
        yield World(folder, "", lambda: LocalBus(SystemClock()), **settings)
        return
    prefix = f"test-{uuid.uuid4().hex[:8]}-"
    chosen = {"bus_url": amqp_url(), "bus_prefix": prefix, "secret_key": SECRET, **settings}
    world = World(folder, postgres_url, lambda: RabbitBus(amqp_url(), SystemClock(), prefix=prefix), **chosen)
    try:
        yield world
    finally:
        retry = RetryPolicy((0.01, 0.02))
        queues = [
            QueueSpec("notes.facts", (), retry=retry),
            QueueSpec(f"notes.work.{LeaseReleased.KEY}", (), ordered=False, retry=retry),
            QueueSpec("test.facts", (), retry=RetryPolicy((0.01,))),
        ]
        await delete_from_broker(amqp_url(), prefix, queues, ["notes"])


async def eventually(condition: Callable[[], Awaitable[object]], timeout_s: float = 20) -> None:
    """Wait until an awaited condition holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.01)
