"""Services as a process: they wait for their peers, say why they cannot start, and end when they are told or fail."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from libs.common.clock import SystemClock
from libs.common.file_locks import hold
from libs.common.http_server import bind, port_of
from libs.common.platform import Platform
from libs.common.running import Build, reason, running, serve_until_stopped
from libs.common.service import Background, Service
from tests.common.notes import MIGRATIONS, SECRET, Notes, World, notes_world
from tests.support.bus import Wire, amqp_url

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The settings of this process: embedded, on a folder of the test's own."""
    for name in [name for name in os.environ if name.startswith("OSMOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OSMOSIS_DATA_DIR", str(tmp_path))
    return tmp_path


def notes_with(*loops: Background) -> Build:
    def build(platform: Platform) -> Service[Notes]:
        service = Service("notes", platform, store=Notes, migrations=MIGRATIONS)
        for number, loop in enumerate(loops):
            service.background(f"loop {number}", loop)
        return service

    return build


async def test_a_service_that_fails_ends_the_process_with_its_reason(embedded: Path):
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise LookupError("the table of figures is gone; restore it from the backup")

    with pytest.raises(SystemExit) as ended:
        async with asyncio.timeout(20):
            await serve_until_stopped("notes", [notes_with(fail)])
    assert ended.value.code == "osmosis notes: the table of figures is gone; restore it from the backup"


async def test_a_start_that_fails_ends_the_process_with_its_reason(
    embedded: Path, monkeypatch: pytest.MonkeyPatch
):
    taken = bind("127.0.0.1", 0)
    monkeypatch.setenv("OSMOSIS_PROBE_PORT", str(port_of(taken)))
    with taken, pytest.raises(SystemExit, match="cannot listen on"):
        await serve_until_stopped("notes", [notes_with()])


async def test_a_missing_secret_ends_the_start(embedded: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OSMOSIS_BUS_URL", amqp_url())
    with pytest.raises(SystemExit, match="OSMOSIS_SECRET_KEY must be set"):
        await serve_until_stopped("notes", [notes_with()])


async def test_a_second_platform_on_the_same_folder_is_refused(embedded: Path):
    with hold(embedded / "run" / "platform.lock") as held:
        assert held
        with pytest.raises(SystemExit, match="another Osmosis runs on"):
            await serve_until_stopped("platform", [notes_with()])


async def test_a_signal_ends_a_running_process_in_good_order(embedded: Path):
    ended: list[str] = []

    async def loop() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append("tidied up")

    async with asyncio.timeout(20):
        await serve_until_stopped("notes", [notes_with(loop)])
    assert ended == ["tidied up"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_signal_ends_a_start_that_waits_for_its_database(tmp_path: Path):
    probe = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OSMOSIS_")},
        "OSMOSIS_DATA_DIR": str(tmp_path),
        "OSMOSIS_DATABASE_URL": "postgresql://postgres@127.0.0.1:1/nowhere",
        "OSMOSIS_PROBE_PORT": str(probe),
    }
    process = subprocess.Popen(
        (sys.executable, "-m", "services.metrics"), cwd=ROOT, env=environment, stderr=subprocess.PIPE
    )
    try:
        health = f"http://127.0.0.1:{probe}"
        deadline = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"{health}/health").status_code == 200
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        ready = httpx.get(f"{health}/ready")
        assert (ready.status_code, ready.json()) == (503, {"services": "starting"})
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=15)
        assert process.returncode == 0, errors.decode()
        assert b"cannot start yet" in errors
    finally:
        process.kill()


@pytest.fixture
async def away(notes_url: str) -> AsyncIterator[Wire]:
    """A wire to the database that is not there yet."""
    wire = await Wire(notes_url).start()
    wire.cut()
    yield wire
    await wire.aclose()


async def test_a_start_waits_for_a_database_that_comes_up_later(tmp_path: Path, away: Wire):
    async with notes_world("embedded", tmp_path, "") as world:
        later = World(tmp_path, away.url, world.new_bus, secret_key=SECRET)
        mend = asyncio.get_running_loop().call_later(0.5, away.mend)
        async with asyncio.timeout(30):
            async with later.life():
                await later.cancel_job()
                assert await later.told(1) == ["job_1"]
        assert mend.when() <= asyncio.get_running_loop().time()


async def test_a_service_works_on_when_its_database_comes_back(tmp_path: Path, away: Wire):
    away.mend()
    async with notes_world("embedded", tmp_path, "") as world:
        lasting = World(tmp_path, away.url, world.new_bus, secret_key=SECRET)
        async with lasting.life() as service:
            await lasting.cancel_job("job_1")
            await lasting.told(1)
            away.cut()
            with pytest.raises(Exception):  # noqa: B017 - whatever the driver says of a lost connection
                await service.database.ping()
            away.mend()
            async with asyncio.timeout(20):
                await lasting.cancel_job("job_2")
                assert await lasting.told(2) == ["job_1", "job_2"]


async def test_a_platform_that_could_not_start_leaves_no_bus_open(tmp_path: Path):
    async with notes_world("embedded", tmp_path, "") as world:
        async with world.life():
            pass
        again = Platform(
            settings=world.settings, bus=world.new_bus(), blobs=world.platform.blobs, clock=SystemClock()
        )
        with pytest.raises(ValueError, match="cannot be built"):
            async with running(again, [world.build, _cannot_be_built]):
                pass
        assert not again.bus.healthy()


def _cannot_be_built(_: Platform) -> Service[Notes]:
    raise ValueError("cannot be built")


def test_a_group_of_errors_is_told_in_one_line():
    group = ExceptionGroup("x", [ValueError("a"), ExceptionGroup("y", [ValueError("b"), ValueError("a")])])
    assert reason(group) == "a; b"
    assert reason(KeyError()) == "KeyError"
