"""A registry over either database, shared by a module's tests; each test has a workspace of its own, or the prepared one."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.registry.worlds import Ready, Team, World, registry_world


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgresql"])
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World]:
    async with registry_world(request.param, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def team(world: World) -> Team:
    """A workspace of the test's own."""
    return await world.team()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ready(world: World) -> Ready:
    """A workspace with all that a run needs, shared by the module's tests."""
    return await (await world.team()).ready()
