"""Sandboxes for the tests: one launcher, pools that are closed, and workspace repositories made of a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher
from services.rewards.tools import ToolHost
from tests.rewards.repositories import Repository


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Bubblewrap's walls; a machine where they can't be had fails the tests."""
    made = Launcher("bubblewrap")
    yield made
    made.close()


@pytest.fixture
async def pools(launcher: Launcher) -> AsyncIterator[SandboxPools]:
    """Pools of one worker, so that a second call meets the worker of the first."""
    made = SandboxPools(launcher, workers=1)
    yield made
    await made.aclose()


@pytest.fixture
async def host(launcher: Launcher) -> AsyncIterator[ToolHost]:
    """A tool host."""
    made = ToolHost(launcher)
    yield made
    await made.aclose()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository to write files into."""
    return Repository(tmp_path / "checkout")
