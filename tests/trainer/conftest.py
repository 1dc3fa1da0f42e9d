"""Worlds over both databases: a test that takes `world` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from tests.support.databases import create_postgres_database, drop_postgres_database
from tests.trainer.worlds import World, empty_database, trainer_world


@pytest.fixture(scope="module")
def postgres_url() -> Generator[str]:
    """A PostgreSQL database of the module's own."""
    url = create_postgres_database()
    yield url
    drop_postgres_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a database; empty: an SQLite file of the test's own."""
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncGenerator[World]:
    """A running trainer service."""
    if database_url:
        await empty_database(database_url)
    async with trainer_world(tmp_path, database_url=database_url) as world:
        yield world
