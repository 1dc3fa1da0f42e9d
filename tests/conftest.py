"""Fixtures of the whole suite: the platform in both columns of the design."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.platforms import COLUMNS, Platform


@pytest.fixture(scope="module", params=sorted(COLUMNS))
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A running platform, shared by a module's tests; the same tests see both columns."""
    running = COLUMNS[request.param](tmp_path_factory.mktemp(request.param))
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def own_platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """A platform of one test's own, that it may kill; parametrise indirectly with a column's name."""
    running = COLUMNS[request.param](tmp_path / "platform")
    try:
        yield running.start()
    finally:
        running.close()


BOTH_COLUMNS = pytest.mark.parametrize("own_platform", sorted(COLUMNS), indirect=True)
