"""The attempt as the process that the scheduler starts: exit status, signals, what its log holds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.common.contracts.recipes import TrainOrder
from libs.common.contracts.rollouts import BatchRequested
from libs.common.contracts.work import AttemptEnded, AttemptStepped
from services.trainer.attempt.running import Exit
from tests.trainer.brokers import BATCHES, Broker, attempt, tiny_recipe
from tests.trainer.worlds import World, trainer_world, until

ROOT = Path(__file__).parents[2]
RUN = "run_1"
LEAVES_WITHIN_S = 5.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with trainer_world(tmp_path, lease_ttl_s=10) as world:
        yield world


async def start(world: World, epoch: int, log: Path, **environment: str) -> asyncio.subprocess.Process:
    known = {key: value for key, value in os.environ.items() if not key.startswith("OSMOSIS_")}
    with log.open("wb") as out:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.trainer.attempt",
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env=known
            | {
                "OSMOSIS_DATA_DIR": str(world.platform.settings.data_dir),
                "OSMOSIS_ATTEMPT_URL": world.address,
                "OSMOSIS_ATTEMPT_WORK_ID": RUN,
                "OSMOSIS_ATTEMPT_EPOCH": str(epoch),
                "OSMOSIS_ATTEMPT_TOKEN": world.token("attempt", RUN, epoch),
                "OSMOSIS_ENGINE_TOKEN": world.token("engine", RUN, epoch),
                "OSMOSIS_ATTEMPT_DEVICES": "cpu:0",
                "OMP_NUM_THREADS": "1",
            }
            | environment,
        )


async def test_a_process_trains_and_leaves_at_once_on_a_signal(world: World, tmp_path: Path) -> None:
    broker = Broker(world)
    broker.on_batch = lambda batch: batch.step != 2
    await broker.listen()
    recipe = await tiny_recipe(world, tmp_path, RUN)
    epoch = await world.grant(RUN, TrainOrder(recipe=recipe))
    log = tmp_path / "attempt.log"
    process = await start(world, epoch, log)
    try:
        await until(lambda: len(broker.batches) == 2, f"two batches: {log.read_text()}", timeout_s=90)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LEAVES_WITHIN_S):
            assert await process.wait() == -signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [step.step for step in world.facts(AttemptStepped)] == [1]
    assert world.facts(AttemptEnded) == []
    for purpose in ("attempt", "engine"):
        assert world.token(purpose, RUN, epoch) not in log.read_text()


async def test_a_process_that_is_fenced_off_says_so_by_its_status(world: World, tmp_path: Path) -> None:
    old = await world.grant(RUN)
    await world.opened(RUN)
    process = await start(world, old, tmp_path / "attempt.log")
    assert await process.wait() == Exit.FENCED


async def test_a_process_without_its_settings_names_what_is_missing(world: World, tmp_path: Path) -> None:
    log = tmp_path / "attempt.log"
    process = await start(world, 1, log, OSMOSIS_ATTEMPT_EPOCH="first")
    assert await process.wait() == 1
    assert "OSMOSIS_ATTEMPT_EPOCH" in log.read_text()
    assert world.token("attempt", RUN, 1) not in log.read_text()


async def test_an_attempt_outlives_the_service(tmp_path: Path) -> None:
    async with trainer_world(tmp_path, lease_ttl_s=30) as before:
        broker = Broker(before)
        interrupted = asyncio.Event()

        async def lie_down_in_step_2(batch: BatchRequested) -> None:
            if batch.step == 2:
                interrupted.set()
                await asyncio.Event().wait()

        broker.on_batch = lie_down_in_step_2
        await broker.listen()
        recipe = await tiny_recipe(before, tmp_path, RUN)
        epoch = await before.grant(RUN, TrainOrder(recipe=recipe))
        running = asyncio.create_task(attempt(before, RUN, epoch))
        async with asyncio.timeout(60):
            await interrupted.wait()
    async with trainer_world(tmp_path, queues=(BATCHES,), lease_ttl_s=30) as after:
        await Broker(after).listen()
        assert await running is Exit.DONE
        await until(lambda: after.facts(AttemptEnded), "the end")
        assert [step.step for step in before.facts(AttemptStepped)] == [1]
        assert [step.step for step in after.facts(AttemptStepped)] == [2, 3]
        assert after.facts(AttemptEnded)[0].outcome == "completed"
