"""The outbox through outages, changes of leadership and poison: nothing lost, nothing out of order for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import select, text, update

from libs.common import leadership, outbox
from libs.common.bus import Bus
from libs.common.clock import SystemClock
from libs.common.contracts.dead_letters import ListDeadLetters, ReplayDeadLetter
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.runs import RunCancelled
from libs.common.database import Database
from libs.common.errors import TooLarge
from libs.common.identifiers import ProjectId, RunId
from libs.common.outbox import HAND_OVER_LIMIT, OUTBOX, Relay
from libs.common.tables import CommonBase, DeadLetterRow, OutboxRow
from tests.common.notes import OPERATOR, WORKSPACE, notes_world
from tests.support.bus import fact, until
from tests.support.databases import SwitchedDatabase


class Broker:
    """A bus that a test takes away, or lets refuse what it names."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.away = False
        self.refused: set[tuple[str, int]] = set()
        self.unsettled = False
        self.pending: list[asyncio.Future[None]] = []

    async def publish(self, envelope: Envelope) -> asyncio.Future[None]:
        """Confirmed at once."""
        what = (envelope.subject, int(envelope.data["number"]))
        if self.away:
            raise ConnectionError("there is no link")
        if what in self.refused:
            raise TooLarge("too large for any bus")
        self.taken.append(what)
        confirmed = asyncio.get_running_loop().create_future()
        if self.unsettled:
            self.pending.append(confirmed)
        else:
            confirmed.set_result(None)
        return confirmed


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path, notes_url: str
) -> AsyncIterator[SwitchedDatabase]:
    made = SwitchedDatabase(notes_url if request.param == "postgresql" else f"sqlite:///{tmp_path}", "notes")
    await create_tables(made)
    yield made
    await made.aclose()


async def create_tables(database: Database) -> None:
    async with database.engine.begin() as connection:
        if not database.is_sqlite:
            await connection.execute(text("CREATE SCHEMA notes"))
        await connection.run_sync(CommonBase.metadata.create_all)


async def commit(database: Database, *facts: Envelope) -> None:
    async with database.begin() as session:
        for envelope in facts:
            session.add(
                OutboxRow(
                    event_id=envelope.id, envelope=envelope.model_dump_json(), created_at=datetime.now(UTC)
                )
            )


async def unpublished(database: Database) -> int:
    async with database.read() as session:
        query = select(OutboxRow.seq).where(OutboxRow.published_at.is_(None))
        return len((await session.scalars(query)).all())


@asynccontextmanager
async def relaying(
    database: Database, broker: Broker, *, one_by_one: bool = True
) -> AsyncIterator[asyncio.Task[None]]:
    relay = Relay(database, cast("Bus", broker), SystemClock(), one_by_one=one_by_one)
    task = asyncio.create_task(relay.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("one_by_one", [True, False])
async def test_many_facts_of_many_subjects_leave_once_and_in_order(database: Database, one_by_one: bool):
    facts = [fact(f"s{number % 7}", number) for number in range(1300)]
    await commit(database, *facts)
    broker = Broker()
    async with relaying(database, broker, one_by_one=one_by_one):
        await until(lambda: len(broker.taken) == 1300)
        while await unpublished(database):  # noqa: ASYNC110 - the database has no event
            await asyncio.sleep(0.01)
    for subject in range(7):
        numbers = [number for name, number in broker.taken if name == f"s{subject}"]
        assert numbers == list(range(subject, 1300, 7))


async def test_a_bus_that_is_away_holds_facts_back_and_loses_none(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "RETRY_S", 0.01)
    broker = Broker()
    broker.away = True
    async with relaying(database, broker):
        await commit(database, *(fact("a", number) for number in range(3)))
        await asyncio.sleep(0)
        assert await unpublished(database) == 3
        broker.away = False
        await until(lambda: broker.taken == [("a", 0), ("a", 1), ("a", 2)])


async def test_a_database_that_is_away_is_waited_for(
    database: SwitchedDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "RETRY_S", 0.01)
    broker = Broker()
    async with relaying(database, broker) as task:
        database.away = True
        await until(lambda: database.refused > 3)
        database.away = False
        await commit(database, fact("a", 1))
        await until(lambda: broker.taken == [("a", 1)])
        assert not task.done()


async def test_a_defect_ends_the_relay(database: Database):
    async with database.engine.begin() as connection:
        await connection.execute(text("DROP TABLE outbox"))
    relay = Relay(database, cast("Bus", Broker()), SystemClock(), one_by_one=True)
    with pytest.raises(BaseExceptionGroup, match="unhandled errors"):
        async with asyncio.timeout(10):
            await relay.run()


async def test_a_fact_that_no_bus_carries_is_set_aside_and_the_next_ones_go_on(database: Database):
    broker = Broker()
    broker.refused = {("a", 1)}
    await commit(database, fact("a", 1), fact("a", 2), fact("b", 1))
    async with relaying(database, broker):
        await until(lambda: len(broker.taken) == 2)
        while await unpublished(database):  # noqa: ASYNC110 - the database has no event
            await asyncio.sleep(0.01)
    assert sorted(broker.taken) == [("a", 2), ("b", 1)]
    async with database.read() as session:
        (letter,) = (await session.scalars(select(DeadLetterRow))).all()
    assert (letter.queue, letter.subject) == (OUTBOX, "a")
    assert letter.error == "it cannot be published: too large for any bus"


async def test_a_fact_that_outlived_too_many_crashes_is_set_aside(database: Database):
    await commit(database, fact("a", 1), fact("b", 1))
    async with database.begin() as session:
        crashed = update(OutboxRow).where(OutboxRow.event_id == fact("a", 1).id)
        await session.execute(crashed.values(hand_overs=HAND_OVER_LIMIT))
    broker = Broker()
    async with relaying(database, broker, one_by_one=False):
        await until(lambda: broker.taken)
        while await unpublished(database):  # noqa: ASYNC110 - the database has no event
            await asyncio.sleep(0.01)
    assert broker.taken == [("b", 1)]
    async with database.read() as session:
        (letter,) = (await session.scalars(select(DeadLetterRow))).all()
    assert "seems to end the process" in letter.error


async def test_lives_that_end_in_good_order_are_held_against_no_fact(database: Database):
    await commit(database, fact("a", 1))
    broker = Broker()
    broker.unsettled = True
    for life in range(HAND_OVER_LIMIT + 3):
        async with relaying(database, broker, one_by_one=False):
            await until(lambda life=life: len(broker.taken) == life + 1)
    async with database.read() as session:
        (row,) = (await session.scalars(select(OutboxRow))).all()
    assert (row.published_at, row.hand_overs) == (None, 0)


async def test_over_a_broker_no_number_of_restarts_makes_a_fact_poison(database: Database):
    await commit(database, fact("a", 1))
    async with database.begin() as session:
        await session.execute(update(OutboxRow).values(hand_overs=HAND_OVER_LIMIT + 5))
    broker = Broker()
    async with relaying(database, broker):
        await until(lambda: broker.taken == [("a", 1)])


async def test_a_fact_that_was_set_aside_is_published_when_it_is_replayed(tmp_path: Path):
    async with notes_world("embedded", tmp_path, "") as world:
        async with world.life() as service:
            stuck = world.envelope(
                RunCancelled(workspace_id=WORKSPACE, run_id=RunId("run_9"), project_id=ProjectId("prj"))
            )
            async with service.database.begin() as session:
                session.add(
                    DeadLetterRow(
                        id=stuck.id,
                        queue=OUTBOX,
                        type=stuck.type,
                        subject=stuck.subject,
                        attempts=10,
                        error="never settled",
                        envelope=stuck.model_dump_json(),
                        died_at=datetime.now(UTC),
                    )
                )
            await world.platform.ask(ReplayDeadLetter(dead_letter_id=stuck.id), OPERATOR, to="notes")
            assert await world.told(1) == ["run_9"]
            assert (await world.platform.ask(ListDeadLetters(), OPERATOR, to="notes")).items == []


@pytest.fixture
async def replicas(notes_url: str) -> AsyncIterator[list[Database]]:
    """Two processes' connections to one database."""
    made = [Database(notes_url, "notes") for _ in range(2)]
    await create_tables(made[0])
    yield made
    for one in made:
        await one.aclose()


async def test_of_two_replicas_one_relays_and_the_other_takes_over_when_it_stops(
    replicas: list[Database], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leadership, "STANDBY_S", 0.02)
    first, second = Broker(), Broker()
    async with relaying(replicas[0], first) as leader:
        await commit(replicas[0], fact("a", 1))
        await until(lambda: first.taken)
        async with relaying(replicas[1], second):
            await commit(replicas[1], fact("a", 2))
            await until(lambda: len(first.taken) == 2)
            leader.cancel()
            await commit(replicas[0], fact("a", 3))
            await until(lambda: second.taken[-1:] == [("a", 3)])
    # The last one of the first may not have been written down as safe: then it comes twice, in order.
    assert second.taken in ([("a", 3)], [("a", 2), ("a", 3)])
    assert first.taken == [("a", 1), ("a", 2)]


async def test_a_leader_whose_connection_dies_leads_no_longer(
    replicas: list[Database], monkeypatch: pytest.MonkeyPatch
):
    for name, seconds in (("STANDBY_S", 0.02), ("CHECK_EVERY_S", 0.02)):
        monkeypatch.setattr(leadership, name, seconds)
    first, second = Broker(), Broker()
    first.unsettled = True
    async with relaying(replicas[0], first) as leader:
        await commit(replicas[0], fact("a", 1), fact("a", 2))
        await until(lambda: first.taken == [("a", 1)])
        async with relaying(replicas[1], second):
            await _kill_leader(replicas[1])
            await until(lambda: second.taken == [("a", 1), ("a", 2)])
            assert not leader.done(), "it stands by"
    assert first.taken == [("a", 1)]


async def test_a_leader_whose_connection_died_can_lead_again(
    replicas: list[Database], monkeypatch: pytest.MonkeyPatch
):
    for name, seconds in (("STANDBY_S", 0.02), ("CHECK_EVERY_S", 0.02)):
        monkeypatch.setattr(leadership, name, seconds)
    monkeypatch.setattr(outbox, "RETRY_S", 0.01)
    broker = Broker()
    async with relaying(replicas[0], broker):
        for number in range(3):
            await commit(replicas[0], fact("a", number))
            await until(lambda number=number: len(broker.taken) > number)
            await _kill_leader(replicas[1])
    assert [number for _, number in broker.taken] == [0, 1, 2]


async def _kill_leader(database: Database) -> None:
    async with database.engine.begin() as connection:
        holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        await connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM ({holders}) AS held"))
