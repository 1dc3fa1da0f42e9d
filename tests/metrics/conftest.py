"""The metrics service's rooms over both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from libs.common.database import Database
from libs.common.migrations import migrate
from libs.common.tables import CommonBase
from services.metrics.service import MIGRATIONS
from services.metrics.tables import MetricsBase
from tests.metrics.worlds import World
from tests.support.databases import create_postgres_database, drop_postgres_database


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A database that a module's tests share, each finding it empty."""
    url = create_postgres_database()
    yield url
    drop_postgres_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> AsyncIterator[World]:
    """Metrics with nothing stored yet."""
    url = postgres_url if request.param == "postgresql" else f"sqlite:///{tmp_path / 'db'}"
    database = Database(url, "metrics")
    await migrate(database, MIGRATIONS)
    async with database.begin() as session:
        for table in (*MetricsBase.metadata.sorted_tables, *CommonBase.metadata.sorted_tables):
            await session.execute(delete(table))
    yield World(database)
    await database.aclose()
