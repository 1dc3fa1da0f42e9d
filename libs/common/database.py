"""One service's database: an SQLite file of its own, or a schema of its own in PostgreSQL.

Guaranteed: `begin` is one transaction, committed whole or not at all; on SQLite writers wait for each other instead of
failing; `read` never waits for a writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

BUSY_TIMEOUT_MS = 30_000


class Database:
    """Sessions of one service."""

    def __init__(self, url: str, service: str) -> None:
        self.service = service
        self.is_sqlite = url.startswith("sqlite")
        if self.is_sqlite:
            folder = Path(url.removeprefix("sqlite:///"))
            folder.mkdir(parents=True, exist_ok=True)
            address = f"sqlite+aiosqlite:///{folder / service}.db"
            self.engine = _sqlite_engine(address, "BEGIN IMMEDIATE")
            self._read_engine = _sqlite_engine(address, "BEGIN")
        else:
            self.engine = create_async_engine(
                url.replace("postgresql://", "postgresql+asyncpg://", 1),
                pool_pre_ping=True,
                pool_size=5,
                max_overflow=10,
                connect_args={
                    "server_settings": {"search_path": service, "application_name": f"osmosis-{service}"}
                },
            )
            self._read_engine = self.engine
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self._read_sessions = async_sessionmaker(self._read_engine, expire_on_commit=False)
        self._writer = asyncio.Lock() if self.is_sqlite else None

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[AsyncSession]:
        """A session in a transaction that commits when the block ends well."""
        writer: AbstractAsyncContextManager[Any] = self._writer or nullcontext()
        async with writer, self._sessions() as session, session.begin():
            yield session

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """A session for questions; what it writes is not kept."""
        async with self._read_sessions() as session:
            yield session

    async def ping(self) -> None:
        """Raises what the driver raises when the database does not answer."""
        async with self.read() as session:
            await session.execute(text("SELECT 1"))

    async def aclose(self) -> None:
        """Close every connection."""
        await self.engine.dispose()
        if self._read_engine is not self.engine:
            await self._read_engine.dispose()


def _sqlite_engine(address: str, begin: str) -> AsyncEngine:
    engine = create_async_engine(
        address, pool_size=4, max_overflow=8, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}
    )

    def on_connect(connection: Any, _record: Any) -> None:
        # The driver must not begin transactions by itself: `begin` decides how they start.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine.sync_engine, "connect", on_connect)
    event.listen(engine.sync_engine, "begin", on_begin)
    return engine
