"""Buses and blob stores of both kinds, and logs that are cheap to write."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from libs.common.blobs import BlobStore
from libs.common.blobs.factory import open_blobs
from libs.common.settings import Settings
from tests.support.bus import BusWorld
from tests.support.databases import create_postgres_database, drop_postgres_database, execute_on_postgres
from tests.support.platforms import create_bucket
from tests.support.s3 import start_moto


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


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server over HTTP."""
    endpoint, stop = start_moto()
    yield endpoint
    stop()


@pytest.fixture
def s3_settings(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A bucket of the test's own, below a prefix."""
    for name, value in {
        "ACCESS_KEY_ID": "test",
        "SECRET_ACCESS_KEY": "test",
        "DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    create_bucket(s3_endpoint, bucket)
    return Settings(blob_url=f"s3://{bucket}/below/here", s3_endpoint=s3_endpoint)


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """The same tests see both stores."""
    if request.param == "s3":
        return open_blobs(request.getfixturevalue("s3_settings"))
    return open_blobs(Settings(data_dir=tmp_path / "data"))


@pytest.fixture(scope="session")
def postgres_of_the_session() -> Iterator[str]:
    """A database that tests share, one after the other."""
    url = create_postgres_database()
    yield url
    drop_postgres_database(url)


@pytest.fixture
def notes_url(postgres_of_the_session: str) -> str:
    """A PostgreSQL database in which the notes have no schema yet."""
    execute_on_postgres(postgres_of_the_session, 'DROP SCHEMA IF EXISTS "notes" CASCADE')
    return postgres_of_the_session
