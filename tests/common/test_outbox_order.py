"""Facts of a subject leave the outbox in their order, also when the broker does not take one; nothing too large gets in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

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


class Broker:
    """Takes facts; a test confirms them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.confirmations: list[asyncio.Future[None]] = []

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        self.taken.append((envelope.subject, envelope.data["number"]))
        self.confirmations.append(asyncio.get_running_loop().create_future())
        return self.confirmations[-1]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(f"sqlite:///{tmp_path}", "test")
    async with made.engine.begin() as connection:
        await connection.run_sync(CommonBase.metadata.create_all)
    yield made
    await made.aclose()


@pytest.mark.parametrize("failure", ["failed", "cancelled"])
async def test_a_fact_that_the_broker_did_not_take_holds_back_the_later_ones_of_its_subject(
    database: Database, failure: str
) -> None:
    broker = Broker()
    async with database.begin() as session:
        for envelope in (fact("a", 1), fact("a", 2), fact("b", 1)):
            row = {"event_id": envelope.id, "envelope": envelope.model_dump_json()}
            session.add(OutboxRow(**row, created_at=datetime.now(UTC)))
    relay = Relay(database, cast("Bus", broker), SystemClock(), one_by_one=True)
    running = asyncio.create_task(relay.run())
    await until(lambda: len(broker.taken) == 2)
    if failure == "failed":
        broker.confirmations[0].set_exception(ConnectionError("the link broke"))
    else:
        broker.confirmations[0].cancel()
    await until(lambda: len(broker.taken) == 3)
    broker.confirmations[2].set_result(None)
    await until(lambda: len(broker.taken) == 4)
    assert broker.taken == [("a", 1), ("b", 1), ("a", 1), ("a", 2)]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


class Essay(Fact):
    """Not registered: it has no key."""

    SUBJECT_FIELD = "workspace_id"
    text: str


async def test_a_fact_that_no_bus_would_take_is_refused_where_it_is_stated(database: Database) -> None:
    async with database.begin() as session:
        uow = UnitOfWork(session, None, source="test", clock=SystemClock())
        with pytest.raises(TooLarge, match="blob store"):
            uow.emit(Essay(workspace_id=WorkspaceId("ws_1"), text="x" * 16 * 1024 * 1024))
    assert uow.emitted == []
