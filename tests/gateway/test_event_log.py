"""The log under two writers at once: a reader's cursor never has a gap that fills up later. Both databases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

import services.gateway.service
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.workspaces import ProjectCreated, ProjectDeleted
from libs.common.database import Database
from libs.common.identifiers import ProjectId, WorkspaceId
from libs.common.migrations import migrate
from libs.common.unit_of_work import UnitsOfWork
from services.gateway.store import GatewayStore
from services.gateway.tables import EventRow
from tests.gateway.samples import AT, MINE, THEIRS
from tests.gateway.worlds import now
from tests.support.databases import fresh_database

MIGRATIONS = Path(services.gateway.service.__file__).parent / "migrations"


@pytest.fixture(params=["sqlite", "postgresql"])
async def units(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[UnitsOfWork[GatewayStore]]:
    async with fresh_database(request.param, "gateway", tmp_path) as database:
        await migrate(database, MIGRATIONS)
        yield units_of(database)


def units_of(database: Database) -> UnitsOfWork[GatewayStore]:
    return UnitsOfWork(database, GatewayStore, source="gateway", clock=SystemClock())


def event(name: str, *, deleted: bool = False) -> Envelope:
    project = ProjectId(name)
    fact = (
        ProjectDeleted(workspace_id=MINE, project_id=project)
        if deleted
        else ProjectCreated(workspace_id=MINE, project_id=project, name="p")
    )
    return Envelope.wrap(fact, id=f"evt_{name}", source="registry", time=AT, traceparent=None)


async def test_a_reader_that_follows_two_writers_misses_nothing(units: UnitsOfWork[GatewayStore]) -> None:
    async def write(writer: str) -> None:
        for number in range(40):
            async with units.begin() as uow:
                await uow.store.append(event(f"{writer}{number}"), now())
                if number % 3 == 0:
                    # A slow transaction: without the lock the other writer commits higher numbers meanwhile.
                    await uow.session.flush()
                    await asyncio.sleep(0.005)

    async def follow() -> list[int]:
        seen: list[int] = []
        async with asyncio.timeout(30):
            while len(seen) < 80:
                async with units.read() as store:
                    page = await store.of_all(after=seen[-1] if seen else 0, limit=1000)
                seen += [logged.seq for logged in page]
                await asyncio.sleep(0)
        return seen

    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(follow())
        tasks.create_task(write("a"))
        tasks.create_task(write("b"))
    assert len(set(reader.result())) == 80


async def test_an_undone_append_leaves_nothing(units: UnitsOfWork[GatewayStore]) -> None:
    with pytest.raises(RuntimeError):
        async with units.begin() as uow:
            await uow.store.append(event("undone"), now())
            raise RuntimeError
    async with units.read() as store:
        assert await store.of_all(after=0, limit=10) == []
        assert (await store.extent()).newest == 0


async def test_pages_stay_quick_among_a_hundred_thousand_events(units: UnitsOfWork[GatewayStore]) -> None:
    def row(number: int, key: str = "rollout.completed") -> dict[str, Any]:
        return {
            "event_id": f"evt_{number}",
            "workspace_id": MINE if number % 2 else THEIRS,
            "key": key,
            "subject": f"ro_{number}",
            "envelope": "{}",
            "logged_at": AT,
        }

    async with units.begin() as uow:
        for start in range(1, 100_001, 10_000):
            await uow.session.execute(
                insert(EventRow), [row(number) for number in range(start, start + 10_000)]
            )
        await uow.session.execute(insert(EventRow), [row(200_001, "run.completed")])
    rare = frozenset({"run.completed", "run.failed"})
    async with units.read() as store:
        await store.extent()
        began = time.perf_counter()
        page = await store.of_workspace(MINE, after=50_000, limit=200)
        of_rare = await store.of_workspace(MINE, after=0, keys=rare, limit=200)
        of_subject = await store.of_workspace(MINE, after=0, subject="ro_77777", limit=200)
        none = await store.of_workspace(WorkspaceId("ws_none"), after=0, limit=200)
        took = time.perf_counter() - began
    assert [logged.seq for logged in page] == list(range(50_001, 50_401, 2))
    assert [(logged.key, logged.subject) for logged in of_rare] == [("run.completed", "ro_200001")]
    assert [logged.subject for logged in of_subject] == ["ro_77777"]
    assert none == []
    assert took < 0.5


async def test_events_of_several_types_come_in_the_order_of_the_log(units: UnitsOfWork[GatewayStore]) -> None:
    async with units.begin() as uow:
        for number in range(30):
            await uow.store.append(event(f"p{number}", deleted=number % 3 == 0), now())
    keys = frozenset({"project.created", "project.deleted"})
    async with units.read() as store:
        both = await store.of_workspace(MINE, after=3, keys=keys, limit=10)
        one = await store.of_workspace(MINE, after=3, keys=frozenset({"project.deleted"}), limit=3)
    assert [logged.seq for logged in both] == list(range(4, 14))
    assert [logged.subject for logged in one] == ["p3", "p6", "p9"]
