"""One service's database: an SQLite file of its own, or a schema of its own in PostgreSQL.

Guaranteed: `begin` is one transaction, committed whole or not at all; on SQLite writers wait for each other instead of
failing; `read` never waits for a writer.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

BUSY_TIMEOUT_MS = 30_000
_PASSING_STATES = frozenset({"08", "40", "53", "55", "57"})
"""Classes of SQLSTATE (PostgreSQL, appendix A) that pass: connection, rollback, resources, object state, operator."""
_PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")


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


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later by itself: a peer is away, starting, overloaded, or chose us to give way.

    An address in use, a missing table or a broken constraint is not: trying again would hide a fault.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(is_transient(member) for member in group.exceptions)
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _driver_says_transient(error.orig)
    if isinstance(error, asyncpg.PostgresError):
        return _driver_says_transient(error)
    if isinstance(
        error, ConnectionError | TimeoutError | socket.gaierror | PoolTimeout | asyncpg.InterfaceError
    ):
        return True
    # asyncio says so when every address of a name refused: several errors in one text, without a number.
    return type(error) is OSError and error.errno is None


def _driver_says_transient(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        return str(getattr(error, "sqlite_errorname", "")).startswith(_PASSING_SQLITE)
    if isinstance(error, asyncpg.InterfaceError):
        return True
    state = getattr(error, "sqlstate", None)
    if state is None and error is not None and error.__cause__ is not None:
        return is_transient(error.__cause__)
    return str(state)[:2] in _PASSING_STATES
