"""The broker's tables, in SQLite and in PostgreSQL: claims, fencing, lists over many rows."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import insert, text

from libs.common.clock import ManualClock
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import SamplingConfig
from libs.common.contracts.rollouts import BatchRequested, GroupSpec
from libs.common.database import Database
from libs.common.identifiers import BatchId, GroupId, RolloutId, RunId, WorkspaceId
from libs.common.migrations import migrate
from libs.common.unit_of_work import UnitsOfWork
from services.rollout.claims import CLAIM_S, INTERRUPTED, Claims
from services.rollout.outcomes import new_row
from services.rollout.plans import Seat
from services.rollout.service import MIGRATIONS
from services.rollout.store import RolloutStore
from services.rollout.tables import RolloutBase, RolloutRow
from tests.support.databases import Kind, fresh_database

WORKSPACE, RUN = WorkspaceId("ws_1"), RunId("run_1")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
ROWS = 100_000


class Tables:
    """A database with the broker's tables and a clock that the test moves."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock(NOW)
        self.units = UnitsOfWork(database, RolloutStore, source="rollout", clock=self.clock)

    def claims(self, owner: str) -> Claims:
        return Claims(self.units, self.clock, owner)

    async def let_in(self, groups: int, n_samples: int = 2, epoch: int = 1, name: str = "a") -> None:
        batch = BatchRequested(
            workspace_id=WORKSPACE,
            batch_id=BatchId(f"batch_{name}"),
            run_id=RUN,
            epoch=epoch,
            step=1,
            phase="train",
            recipe=BlobRef(key="recipe", size=0, sha256="0" * 64),
            engine_url="http://engine",
            groups=[GroupSpec(group_id=GroupId(f"group_{name}_{n}"), row_index=n) for n in range(groups)],
            n_samples=n_samples,
            sampling=SamplingConfig(),
            seed=1,
            deadline=NOW + timedelta(hours=1),
        )
        async with self.units.begin() as uow:
            row = {"batch_id": batch.batch_id, "run_id": RUN, "epoch": epoch, "created_at": NOW}
            group_rows: list[dict[str, Any]] = [
                {
                    "group_id": spec.group_id,
                    "batch_id": batch.batch_id,
                    "run_id": RUN,
                    "epoch": epoch,
                    "row_index": spec.row_index,
                    "n_samples": n_samples,
                    "state": "waiting",
                }
                for spec in batch.groups
            ]
            rollouts = [
                new_row(batch, spec.group_id, spec.row_index, Seat(RolloutId(uow.new_id("rollout")), n), NOW)
                for spec in batch.groups
                for n in range(n_samples)
            ]
            assert await uow.store.add_batch(
                {**row, "request_json": batch.model_dump_json()}, group_rows, rollouts
            )

    async def statuses(self) -> list[tuple[str, str | None]]:
        async with self.database.read() as session:
            found = await session.execute(text("SELECT status, error FROM rollouts ORDER BY id"))
            return [(status, error) for status, error in found]


@pytest.fixture(params=["sqlite", "postgresql"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Tables]:
    kind: Kind = request.param
    async with fresh_database(kind, "rollout", tmp_path) as database:
        await migrate(database, MIGRATIONS)
        yield Tables(database)


async def test_the_migration_makes_the_tables_that_the_code_knows(tables: Tables) -> None:
    async with tables.database.read() as session:
        for table in RolloutBase.metadata.sorted_tables:
            await session.execute(table.select().limit(1))


async def test_a_group_is_claimed_by_one_replica_until_its_claim_runs_out(tables: Tables) -> None:
    await tables.let_in(3)
    first, second = tables.claims("rollout.a"), tables.claims("rollout.b")
    assert [len(claim.seats) for claim in await first.take(4)] == [2, 2]
    assert [claim.row_index for claim in await second.take(100)] == [2]
    assert await second.take(100) == []
    assert await first.renew([GroupId("group_a_0"), GroupId("group_a_2")]) == {"group_a_0"}


async def test_a_group_larger_than_what_is_free_comes_alone(tables: Tables) -> None:
    await tables.let_in(2, n_samples=8)
    assert len(await tables.claims("rollout.a").take(3)) == 1


async def test_groups_of_a_replica_that_is_gone_start_again_with_fresh_rollouts(tables: Tables) -> None:
    await tables.let_in(1)
    [lost] = await tables.claims("rollout.a").take(10)
    tables.clock.advance(timedelta(seconds=CLAIM_S + 1))
    [taken] = await tables.claims("rollout.b").take(10)
    assert [seat.sample_index for seat in taken.seats] == [0, 1]
    assert not {seat.rollout_id for seat in taken.seats} & {seat.rollout_id for seat in lost.seats}
    assert sorted(await tables.statuses()) == sorted([("failed", INTERRUPTED)] * 2 + [("running", None)] * 2)


async def test_a_replica_that_lost_its_claim_cannot_end_the_group(tables: Tables) -> None:
    await tables.let_in(1)
    await tables.claims("rollout.a").take(10)
    tables.clock.advance(timedelta(seconds=CLAIM_S + 1))
    await tables.claims("rollout.b").take(10)
    async with tables.units.begin() as uow:
        assert not await uow.store.end_group(GroupId("group_a_0"), "rollout.a", "scoring", "{}")
        assert await uow.store.end_group(GroupId("group_a_0"), "rollout.b", "scoring", "{}")
        assert await uow.store.complete_group(GroupId("group_a_0"), "{}")
        assert not await uow.store.complete_group(GroupId("group_a_0"), "{}")


async def test_claims_that_are_handed_back_can_be_taken_at_once(tables: Tables) -> None:
    await tables.let_in(2)
    first = tables.claims("rollout.a")
    await first.take(2)
    await tables.claims("rollout.b").take(2)
    await first.hand_back()
    assert [claim.row_index for claim in await tables.claims("rollout.c").take(100)] == [0]


async def test_an_epoch_that_is_over_takes_its_groups_and_rollouts_along(tables: Tables) -> None:
    await tables.let_in(1)
    await tables.let_in(1, epoch=2, name="b")
    claims = tables.claims("rollout.a")
    await claims.take(2)
    async with tables.units.begin() as uow:
        await uow.store.abandon(RUN, 1, "abandoned: a newer attempt took over", NOW)
    assert sorted(status for status, _ in await tables.statuses()) == ["failed"] * 2 + ["pending"] * 2
    assert [claim.batch.epoch for claim in await claims.take(10)] == [2]
    assert await claims.renew([GroupId("group_a_0"), GroupId("group_b_0")]) == {"group_b_0"}


async def test_a_batch_of_a_thousand_rollouts_is_written_and_claimed_in_a_moment(tables: Tables) -> None:
    started = time.perf_counter()
    await tables.let_in(64, n_samples=16)
    claims = await tables.claims("rollout.a").take(1024)
    assert len(claims) == 64
    assert time.perf_counter() - started < 3


async def test_every_filter_over_a_hundred_thousand_rollouts_answers_by_an_index(tables: Tables) -> None:
    await _many(tables)
    filters: list[dict[str, Any]] = [
        {},
        {"step": 7},
        {"phase": "validation"},
        {"status": "failed"},
        {"status": "failed", "with_tool_calls": True},
        {"with_tool_calls": True},
        {"step": 99_999},
    ]
    for chosen in filters:
        seen: list[str] = []
        started = time.perf_counter()
        for _ in range(3):
            page = await _page(tables, before=seen[-1] if seen else None, **chosen)
            seen += [row.id for row in page]
        assert time.perf_counter() - started < 0.5, chosen
        assert seen == sorted(set(seen), reverse=True), chosen
    assert len(seen) == 0


async def test_lists_do_not_show_another_workspaces_rollouts(tables: Tables) -> None:
    await tables.let_in(1)
    assert len(await _page(tables)) == 2
    assert await _page(tables, workspace=WorkspaceId("ws_2")) == []


async def _page(
    tables: Tables,
    *,
    before: str | None = None,
    workspace: WorkspaceId = WORKSPACE,
    step: int | None = None,
    phase: Literal["train", "validation"] | None = None,
    status: str | None = None,
    with_tool_calls: bool = False,
) -> list[RolloutRow]:
    async with tables.units.read() as store:
        rows = await store.rollouts(
            workspace,
            RUN,
            step=step,
            phase=phase,
            status=status,
            with_tool_calls=with_tool_calls,
            before=before,
            limit=50,
        )
    return list(rows)


async def _many(tables: Tables) -> None:
    """A run with many rollouts, 64 a step, of which few were validations, failures or called a tool."""
    await tables.let_in(1)
    rows = [
        {
            "id": f"rollout_{n:08d}",
            "group_id": "group_a_0",
            "workspace_id": WORKSPACE,
            "run_id": RUN,
            "epoch": 1,
            "step": n // 64,
            "phase": "validation" if n % 1000 == 0 else "train",
            "row_index": n % 80,
            "sample_index": n % 8,
            "replacement": 0,
            "status": "failed" if n % 500 == 1 else "completed",
            "turns": 1,
            "tool_calls": 1 if n % 2000 == 1 else 0,
            "tokens": 12,
            "duration_ms": 1.0,
            "created_at": NOW,
        }
        for n in range(ROWS)
    ]
    async with tables.database.begin() as session:
        for start in range(0, ROWS, 1000):
            await session.execute(insert(RolloutRow.__table__), rows[start : start + 1000])
    if not tables.database.is_sqlite:
        async with tables.database.begin() as session:
            await session.execute(text("ANALYZE rollouts"))
