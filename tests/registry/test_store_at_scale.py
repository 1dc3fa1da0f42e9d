"""Lists stay flat: a page of a hundred thousand runs or findings costs what a page of a hundred costs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text

from libs.common.database import Database
from libs.common.identifiers import ProjectId, WorkspaceId
from libs.common.migrations import migrate
from services.registry.service import MIGRATIONS
from services.registry.store import RegistryStore
from services.registry.tables import ProjectRow, RunRow, WorkspaceRow
from tests.support.databases import fresh_database

RUNS = 100_000
PAGE_S = 0.25
"""Far more than a page takes (a few milliseconds), far less than reading all rows."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(database: Database) -> None:
    async with database.begin() as session:
        session.add_all(WorkspaceRow(id=w, name=w, timezone="UTC", created_at=NOW) for w in ("ws_1", "ws_2"))
        await session.flush()
        project: dict[str, Any] = {
            "description": "",
            "rollout_mode": "local",
            "created_at": NOW,
            "updated_at": NOW,
        }
        session.add_all(
            ProjectRow(id=f"prj_{w}", workspace_id=w, name="p", **project) for w in ("ws_1", "ws_2")
        )
        await session.flush()
        for start in range(0, RUNS, 1000):
            await session.execute(insert(RunRow), [run(number) for number in range(start, start + 1000)])
        if not database.is_sqlite:
            await session.execute(text("ANALYZE"))


def run(number: int) -> dict[str, Any]:
    workspace = "ws_2" if number % 1000 == 0 else "ws_1"
    return {
        "id": f"run_{number:06}",
        "workspace_id": workspace,
        "project_id": f"prj_{workspace}",
        "dataset_id": f"ds_{number % 100}",
        "name": "",
        "recipe_json": "{}",
        "order_json": "{}",
        "status": "running" if number % 10_000 == 1 else "completed",
        "epoch": 1,
        "attempt_over": False,
        "attempts": 1,
        "losses": 0,
        "step": 0,
        "total_steps": 0,
        "created_at": NOW,
    }


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_page_of_many_runs_is_read_at_once(kind: Any, tmp_path: Path):
    async with fresh_database(kind, "registry", tmp_path) as database:
        await migrate(database, MIGRATIONS)
        await fill(database)
        async with database.read() as session:
            store = RegistryStore(session)

            async def page(workspace: str = "ws_1", **options: Any) -> tuple[list[str], str | None]:
                chosen: dict[str, Any] = {"project_id": None, "status": None, "limit": 50, "cursor": None}
                started = time.perf_counter()
                found = await store.runs.page(WorkspaceId(workspace), **(chosen | options))
                assert time.perf_counter() - started < PAGE_S
                return [row.id for row in found.rows], found.next_cursor

            await page()
            newest, cursor = await page()
            assert newest[0] == "run_099999"
            assert (await page(cursor=cursor))[0][0] < newest[-1]
            assert (await page(cursor="run_000100"))[0][0] == "run_000099"
            assert len((await page("ws_2", project_id=ProjectId("prj_ws_2")))[0]) == 50
            assert len((await page(status="running"))[0]) == 10
            started = time.perf_counter()
            assert len(await store.runs.active_on_dataset("ds_1")) == 10
            assert time.perf_counter() - started < PAGE_S
