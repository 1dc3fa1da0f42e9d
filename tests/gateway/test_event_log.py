"""The log under two writers at once: a reader's cursor never has a gap that fills up later. Both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import services.gateway.service
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.workspaces import ProjectCreated
from libs.common.database import Database
from libs.common.identifiers import ProjectId
from libs.common.migrations import migrate
from libs.common.unit_of_work import UnitsOfWork
from services.gateway.store import GatewayStore
from tests.gateway.samples import AT, MINE
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


def event(name: str) -> Envelope:
    fact = ProjectCreated(workspace_id=MINE, project_id=ProjectId(name), name="p")
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


async def test_a_page_is_read_by_index_among_many(units: UnitsOfWork[GatewayStore]) -> None:
    async with units.begin() as uow:
        for number in range(300):
            await uow.store.append(event(f"p{number}"), now())
    async with units.read() as store:
        page = await store.of_workspace(MINE, after=250, keys=frozenset({"project.created"}), limit=10)
        one = await store.of_workspace(MINE, after=0, subject="p7", limit=10)
    assert [logged.seq for logged in page] == list(range(251, 261))
    assert [logged.subject for logged in one] == ["p7"]
