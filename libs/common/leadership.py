"""One process a service at work: on PostgreSQL by an advisory lock, on SQLite by being the one process.

Guaranteed: the lock's connection lives as long as the leadership, and its end is noticed within `CHECK_EVERY_S` at the
next check. Not promised: that the last leader has stopped when the next begins; between the two, work is done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.database import Database

STANDBY_S = 1.0
CHECK_EVERY_S = 1.0
CHECK_TIMEOUT_S = 5.0


class LeadershipLost(ConnectionError):
    """The connection that held the lock is gone: another process may lead."""


class Leadership:
    """Held inside `leadership`. `check` it between two pieces of work."""

    def __init__(self, connection: AsyncConnection | None) -> None:
        self._connection = connection
        self._checked = asyncio.get_running_loop().time()

    async def check(self) -> None:
        """Ask, at most once in `CHECK_EVERY_S`, whether the lock is still ours.

        Raises:
            LeadershipLost: its connection broke.
        """
        now = asyncio.get_running_loop().time()
        if self._connection is None or now - self._checked < CHECK_EVERY_S:
            return
        self._checked = now
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._connection.execute(text("SELECT 1"))
        except (DBAPIError, OSError, TimeoutError) as error:
            raise LeadershipLost(f"the connection that held the lock broke: {error!r}") from error


@asynccontextmanager
async def leadership(database: Database, task: str) -> AsyncGenerator[Leadership]:
    """Wait until no other process of this service leads in a task, then lead inside the block."""
    if database.is_sqlite:
        yield Leadership(None)
        return
    async with database.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            lock = text("SELECT pg_try_advisory_lock(hashtext(:name))")
            # Another process releases an advisory lock by ending: nothing in this one can be waited for.
            while not await connection.scalar(lock, {"name": f"osmosis-{task}-{database.service}"}):  # noqa: ASYNC110
                await asyncio.sleep(STANDBY_S)
            yield Leadership(connection)
        finally:
            # Back in the pool, the connection would keep the lock.
            await connection.invalidate()
