"""Transactions on both databases, which errors pass, and every service's schema: up, down, and equal to its models."""

from __future__ import annotations

import asyncio
import errno
import importlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase

import libs.common.migrations as migrations
from libs.common.database import Database, is_transient
from libs.common.migrations import migrate
from libs.common.tables import CommonBase
from tests.common.notes import MIGRATIONS, NoteRow
from tests.support.databases import execute_on_postgres

ROOT = Path(__file__).parent.parent.parent
SERVICES = ("registry", "scheduler", "trainer", "rollout", "rewards", "metrics", "gateway")


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path, notes_url: str) -> AsyncIterator[Database]:
    made = Database(notes_url if request.param == "postgresql" else f"sqlite:///{tmp_path}", "notes")
    await migrate(made, MIGRATIONS)
    yield made
    await made.aclose()


async def notes(database: Database) -> list[str]:
    async with database.read() as session:
        return list((await session.scalars(select(NoteRow.text).order_by(NoteRow.id))).all())


async def test_a_transaction_that_raises_leaves_nothing(database: Database):
    with pytest.raises(ValueError, match="changed my mind"):
        async with database.begin() as session:
            session.add(NoteRow(subject="a", text="1"))
            await session.flush()
            raise ValueError("changed my mind")
    assert await notes(database) == []


async def test_a_transaction_that_is_cancelled_leaves_nothing(database: Database):
    inside = asyncio.Event()

    async def write() -> None:
        async with database.begin() as session:
            session.add(NoteRow(subject="a", text="1"))
            await session.flush()
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await notes(database) == []
    async with database.begin() as session:
        session.add(NoteRow(subject="a", text="2"))
    assert await notes(database) == ["2"]


async def test_many_writers_at_once_wait_for_each_other(database: Database):
    async def write(number: int) -> None:
        async with database.begin() as session:
            known = len((await session.scalars(select(NoteRow))).all())
            session.add(NoteRow(subject=str(known), text=str(number)))

    await asyncio.gather(*(write(number) for number in range(40)))
    assert sorted(map(int, await notes(database))) == list(range(40))


async def test_a_reader_does_not_wait_for_a_writer(database: Database):
    async with database.begin() as session:
        session.add(NoteRow(subject="a", text="1"))
        await session.flush()
        async with asyncio.timeout(5):
            assert await notes(database) == []
    assert await notes(database) == ["1"]


async def test_two_processes_write_to_one_file_in_turns(tmp_path: Path):
    first, second = (Database(f"sqlite:///{tmp_path}", "notes") for _ in range(2))
    await migrate(first, MIGRATIONS)

    async def write(database: Database, number: int) -> None:
        async with database.begin() as session:
            session.add(NoteRow(subject="a", text=str(number)))
            await session.flush()
            await asyncio.sleep(0)

    await asyncio.gather(*(write(database, n) for n in range(20) for database in (first, second)))
    assert len(await notes(first)) == 40
    for one in (first, second):
        await one.aclose()


def _sqlite_error(kind: type[sqlite3.Error], name: str) -> sqlite3.Error:
    error = kind("x")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (OSError("Multiple exceptions: [Errno 111] …"), True),
        (OSError(errno.EADDRINUSE, "cannot listen on 127.0.0.1:8700"), False),
        (FileNotFoundError(errno.ENOENT, "x"), False),
        (asyncpg.CannotConnectNowError("starting up"), True),
        (asyncpg.UndefinedTableError("x"), False),
        (OperationalError("q", {}, _sqlite_error(sqlite3.OperationalError, "SQLITE_BUSY")), True),
        (OperationalError("q", {}, _sqlite_error(sqlite3.OperationalError, "SQLITE_FULL")), True),
        (OperationalError("q", {}, _sqlite_error(sqlite3.OperationalError, "SQLITE_ERROR")), False),
        (DBAPIError("q", {}, Exception("x"), connection_invalidated=True), True),
        (IntegrityError("q", {}, _sqlite_error(sqlite3.IntegrityError, "SQLITE_CONSTRAINT")), False),
        (ProgrammingError("q", {}, Exception("x")), False),
        (ValueError("x"), False),
        (ExceptionGroup("g", [ConnectionResetError(), TimeoutError()]), True),
        (ExceptionGroup("g", [ConnectionResetError(), ValueError("x")]), False),
    ],
)
def test_errors_that_pass_by_themselves_are_told_from_faults(error: BaseException, passes: bool):
    assert is_transient(error) is passes


async def test_errors_of_a_real_server_are_told_apart(notes_url: str):
    database = Database(notes_url, "notes")
    async with database.engine.connect() as connection:
        with pytest.raises(DBAPIError) as missing:
            await connection.execute(text("SELECT * FROM nowhere"))
    assert not is_transient(missing.value)
    with pytest.raises(Exception) as killed:
        async with database.engine.connect() as connection:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert is_transient(killed.value)
    await database.aclose()
    gone = Database("postgresql://postgres@127.0.0.1:1/nowhere", "notes")
    with pytest.raises(OSError) as refused:
        await gone.ping()
    assert is_transient(refused.value)
    await gone.aclose()


def metadata_of(service: str) -> MetaData:
    """The common tables and the service's own."""
    whole = MetaData()
    bases: list[type[DeclarativeBase]] = [CommonBase]
    if (ROOT / "services" / service / "tables.py").exists():
        tables = importlib.import_module(f"services.{service}.tables")
        bases += [
            kind
            for kind in vars(tables).values()
            if isinstance(kind, type) and DeclarativeBase in kind.__bases__ and kind is not CommonBase
        ]
        assert len(bases) == 2
    for base in bases:
        for table in base.metadata.sorted_tables:
            table.to_metadata(whole)
    return whole


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_schema_equals_its_models_and_can_be_taken_back(
    kind: str, service: str, tmp_path: Path, service_url: str
):
    database = Database(service_url if kind == "postgresql" else f"sqlite:///{tmp_path}", service)
    versions = ROOT / "services" / service / "migrations"
    await migrate(database, versions)
    await migrate(database, versions)  # the next start changes nothing
    async with database.engine.begin() as connection:
        differences = await connection.run_sync(_differences, metadata_of(service))
        assert differences == []
        await connection.run_sync(_downgrade, versions)
        left = await connection.run_sync(lambda sync: set(sync.dialect.get_table_names(sync)))
    assert left <= {"alembic_version"}
    await migrate(database, versions)
    await database.aclose()


@pytest.fixture
def service_url(postgres_of_the_session: str) -> str:
    for service in SERVICES:
        execute_on_postgres(postgres_of_the_session, f'DROP SCHEMA IF EXISTS "{service}" CASCADE')
    return postgres_of_the_session


def _differences(connection: Connection, metadata: MetaData) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return [difference for difference in compare_metadata(context, metadata) if not _of_alembic(difference)]


def _of_alembic(difference: object) -> bool:
    return isinstance(difference, tuple) and getattr(difference[1], "name", "") == "alembic_version"


def _downgrade(connection: Connection, versions: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.downgrade(config, "base")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_start_at_once_migrate_once(kind: str, tmp_path: Path, service_url: str):
    url = service_url if kind == "postgresql" else f"sqlite:///{tmp_path}"
    program = f"""
import asyncio
from pathlib import Path
from libs.common.database import Database
from libs.common.migrations import migrate
async def main():
    database = Database({url!r}, "metrics")
    await migrate(database, Path("services/metrics/migrations").absolute())
    await database.aclose()
asyncio.run(main())
"""
    started = [
        subprocess.Popen((sys.executable, "-c", program), cwd=ROOT, stderr=subprocess.PIPE) for _ in range(4)
    ]
    ended = [(process.communicate(timeout=60)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0, 0, 0], ended
