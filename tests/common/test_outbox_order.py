"""The relay keeps the order of commits even when an earlier fact fails while later ones are on their way out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from libs.common.bus import Bus
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope, Fact
from libs.common.database import Database
from libs.common.errors import TooLarge
from libs.common.identifiers import WorkspaceId
from libs.common.outbox import Relay
from libs.common.tables import CommonBase, OutboxRow
from libs.common.unit_of_work import UnitOfWork
from tests.support.bus import fact, until


class Publisher:
    """Takes facts and confirms none by itself; the second one only at the second attempt."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.confirmations: list[asyncio.Future[None]] = []
        self.refused = False

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        if envelope.data["number"] == 2 and not self.refused:
            self.refused = True
            raise ConnectionError("no link")
        self.taken.append(envelope.data["number"])
        self.confirmations.append(asyncio.get_running_loop().create_future())
        return self.confirmations[-1]


class Interrupted(Database):
    """A database between whose answer and its reader something may happen."""

    meanwhile: Any = None

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with super().read() as session:
            yield session
        if self.meanwhile is not None and await self.meanwhile():
            self.meanwhile = None


@pytest.mark.parametrize("failure", ["failed", "cancelled"])
async def test_a_fact_that_failed_while_later_ones_were_read_goes_before_them(
    tmp_path: Path, failure: str
) -> None:
    database, publisher = Interrupted(f"sqlite:///{tmp_path}", "test"), Publisher()
    async with database.engine.begin() as connection:
        await connection.run_sync(CommonBase.metadata.create_all)
    relay = Relay(database, cast("Bus", publisher), SystemClock())

    async with database.begin() as session:
        for envelope in (fact("a", 1), fact("a", 2)):
            row = {"event_id": envelope.id, "envelope": envelope.model_dump_json()}
            session.add(OutboxRow(**row, created_at=datetime.now(UTC)))

    async def fail_the_first() -> bool:
        if not publisher.refused:
            return False
        if failure == "failed":
            publisher.confirmations[0].set_exception(ConnectionError("the link broke"))
        else:
            publisher.confirmations[0].cancel()
        await asyncio.sleep(0)
        return True

    database.meanwhile = fail_the_first
    running = asyncio.create_task(relay.run())
    await until(lambda: len(publisher.taken) == 3)
    assert publisher.taken == [1, 1, 2]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await database.aclose()


class Essay(Fact):
    """Not registered: it has no key."""

    text: str


async def test_a_fact_that_no_bus_would_take_is_refused_where_it_is_stated(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}", "test")
    async with database.begin() as session:
        uow = UnitOfWork(session, None, source="test", clock=SystemClock())
        essay = Essay.model_construct(workspace_id=WorkspaceId("ws_1"), text="x" * 16 * 1024 * 1024)
        Essay.SUBJECT_FIELD = "workspace_id"
        with pytest.raises(TooLarge, match="blob store"):
            uow.emit(essay)
    await database.aclose()
    assert uow.emitted == []
