"""Buses of both kinds, and logs that are cheap to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.support.bus import BusWorld


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """Unconfigured, structlog draws every traceback with its locals: slow."""
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()], cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()


@pytest.fixture(params=["local", "rabbitmq"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[BusWorld]:
    """The same tests see both buses."""
    made = BusWorld(request.param)
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture
async def broker() -> AsyncIterator[BusWorld]:
    """RabbitMQ alone, for what only a broker does."""
    made = BusWorld("rabbitmq")
    try:
        yield made
    finally:
        await made.aclose()
