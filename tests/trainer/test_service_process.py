"""The service as part of a process: how light it is, and where attempts find it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from libs.common.contracts.work import AttemptStarted
from tests.trainer.worlds import answered, open_test_platform, trainer_world, until

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "numpy")


def test_the_service_loads_no_tensor_library() -> None:
    program = f"import sys, services.trainer.service; print([m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run(
        (sys.executable, "-c", program), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


async def test_attempts_find_the_service_where_it_was_before_a_restart(tmp_path: Path) -> None:
    async with trainer_world(tmp_path) as before:
        address = before.address
        epoch, client = await before.opened("run_1")
    async with trainer_world(tmp_path) as after:
        assert after.address == address
        await answered(client, 200)
        assert (await client.post("/started", json={})).status_code == 200
        await until(lambda: after.facts(AttemptStarted), "the start")
        assert after.facts(AttemptStarted)[0].epoch == epoch


async def test_a_taken_port_moves_the_door_and_the_file_says_where(tmp_path: Path) -> None:
    async with trainer_world(tmp_path / "one") as one:
        there = tmp_path / "two" / "run"
        there.mkdir(parents=True)
        (there / "trainer.url").write_text(one.address)
        async with trainer_world(tmp_path / "two") as two:
            assert two.address != one.address
            epoch = await two.grant("run_1")
            await answered(two.client("run_1", epoch), 200)


async def test_an_outer_address_is_announced_as_it_was_set(tmp_path: Path) -> None:
    async with trainer_world(tmp_path, trainer_url="https://trainer.example") as world:
        assert world.address == "https://trainer.example"
        assert open_test_platform(tmp_path).settings.trainer_url is None
