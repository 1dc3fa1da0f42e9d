"""Schedulers over both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.scheduler.worlds import ScriptedBackend, World, scheduler_world
from tests.support.databases import create_postgres_database, drop_postgres_database


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A database that a module's tests share, each finding it empty."""
    url = create_postgres_database()
    yield url
    drop_postgres_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> AsyncIterator[World]:
    """A scheduler with one CPU slot."""
    url = postgres_url if request.param == "postgresql" else f"sqlite:///{tmp_path / 'db'}"
    async with scheduler_world(url, tmp_path) as made:
        yield made


@pytest.fixture
def backend(world: World) -> ScriptedBackend:
    """Its processes."""
    assert isinstance(world.backend, ScriptedBackend)
    return world.backend
