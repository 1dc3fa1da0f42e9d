"""Databases of a test's own: an SQLite folder, or a fresh PostgreSQL database that is dropped afterwards."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import asyncpg
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.database import Database

Kind = Literal["sqlite", "postgresql"]
SERVER = "OSMOSIS_TEST_POSTGRES_URL"
DEFAULT_SERVER = "postgresql://postgres@127.0.0.1:5432/postgres"


def create_postgres_database() -> str:
    """The address of a new, empty database."""
    name = f"osmosis_test_{uuid.uuid4().hex[:12]}"
    _on_server(f'CREATE DATABASE "{name}"')
    return f"{_server().rpartition('/')[0]}/{name}"


def drop_postgres_database(url: str) -> None:
    """Drop it, whoever is still connected."""
    _on_server(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')


class SwitchedDatabase(Database):
    """A real database that a test switches off: every call fails as the driver's does when the server is away."""

    away: bool = False
    refused: int = 0

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[AsyncSession]:
        """Fails while away."""
        self._check()
        async with super().begin() as session:
            yield session

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """Fails while away."""
        self._check()
        async with super().read() as session:
            yield session

    def _check(self) -> None:
        if self.away:
            self.refused += 1
            raise OperationalError("SELECT 1", {}, ConnectionRefusedError(), connection_invalidated=True)


@asynccontextmanager
async def fresh_database(kind: Kind, service: str, folder: Path) -> AsyncIterator[Database]:
    """An empty database of a service, without its tables: call `migrate`."""
    url = (
        f"sqlite:///{folder / 'db'}"
        if kind == "sqlite"
        else await asyncio.to_thread(create_postgres_database)
    )
    database = Database(url, service)
    try:
        yield database
    finally:
        await database.aclose()
        if kind == "postgresql":
            await asyncio.to_thread(drop_postgres_database, url)


def execute_on_postgres(url: str, statement: str) -> None:
    """Execute one statement; from a place where no event loop runs."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def _server() -> str:
    return os.environ.get(SERVER, DEFAULT_SERVER)


def _on_server(statement: str) -> None:
    execute_on_postgres(_server(), statement)
