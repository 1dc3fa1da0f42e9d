"""The sandbox itself: its self-test, how it ends, and what it says when it can't start."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from libs.common.errors import Invalid, Unavailable
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher, Limits, SandboxProject, report_walls, require_walls
from services.rewards.sandbox.packages import importable_paths
from tests.rewards.repositories import QUICK, Repository, call, function, living_below, sample

ROOT = Path(__file__).parents[2]


async def test_every_wall_stands(launcher: Launcher) -> None:
    report = await report_walls(launcher)
    assert report.missing == {}
    assert set(report.walls) >= {
        "network",
        "files",
        "processes",
        "unprivileged-user",
        "process-limit",
        "tracing",
    }


async def test_without_walls_that_is_said_and_refused_unless_allowed_by_name() -> None:
    bare = Launcher("none")
    assert "OSMOSIS_SANDBOX=none" in (await report_walls(bare)).missing["all"]
    with pytest.raises(Unavailable, match="walls of the sandbox are missing"):
        await require_walls(bare)
    assert (await require_walls(bare, frozenset({"all"}))).missing


async def test_without_walls_the_protocol_and_the_limits_are_the_same(repository: Repository) -> None:
    bare = SandboxPools(Launcher("none"), workers=1)
    project = repository.reward("while True: pass").project()
    limits = Limits(wall_s=5, cpu_s=1)
    try:
        assert (await call(bare, project, "fine", limits)).value == 0.5
        assert (await call(bare, project, "tried", limits)).error_kind == "timeout"
        assert (await call(bare, project, "fine", limits)).value == 0.5
    finally:
        await bare.aclose()


async def test_a_folder_that_is_not_there_is_told_in_the_sandboxs_words(
    launcher: Launcher, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    with pytest.raises((Unavailable, Invalid, FileNotFoundError), match="gone"):
        await launcher.start(SandboxProject(folder, "c"), Limits(), "rewards")
    assert not living_below()


async def test_killing_a_sandbox_ends_all_in_it_and_leaves_no_zombie(
    launcher: Launcher, repository: Repository
) -> None:
    repository.write(
        "reward_fn/scores.py", "import os, time\nfor _ in range(3):\n    if os.fork() == 0: time.sleep(600)\n"
    )
    sandbox = await launcher.start(repository.project(), Limits(), "rewards")
    names = {"calls": [{"call": 0, "file": "reward_fn/scores.py", "function": "f", "inputs": {}}]}
    await sandbox.link.send(names)
    while "importing" not in await sandbox.link.receive():
        pass
    await sandbox.kill()
    await sandbox.kill()
    assert not psutil.Process().children(recursive=True)


def test_sandboxes_die_with_the_service(repository: Repository) -> None:
    repository.reward("import time; time.sleep(600)")
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from services.rewards.sandbox import *
from services.rewards.pools import SandboxPools
from services.rewards.domain.inputs import *
async def main():
    pools = SandboxPools(Launcher("bubblewrap"), workers=2)
    project = SandboxProject(Path({str(repository.root)!r}), "c")
    fine, slow = (FunctionRef(n, "reward_fn/scores.py", n) for n in ("fine", "tried"))
    one = RewardInput("s", [], "1")
    await pools.call_rewards(project, [fine], [one], Limits(wall_s=600))
    print("ready", flush=True)
    await pools.call_rewards(project, [slow] * 4, [one], Limits(wall_s=600))
asyncio.run(main())
"""
    service = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        family = psutil.Process(service.pid).children(recursive=True)
        assert len(family) >= 3
    finally:
        service.kill()
        service.communicate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


async def test_least_recently_used_pools_are_closed_and_idle_ones_too(
    launcher: Launcher, tmp_path: Path
) -> None:
    clock = [0.0]
    pools = SandboxPools(launcher, workers=1, most_pools=2, monotonic=lambda: clock[0])
    try:
        for number in range(3):
            clock[0] += 1
            project = Repository(tmp_path / str(number)).reward("return 1.0").project()
            await pools.call_rewards(project, [function("tried")], [sample()], QUICK)
        assert pools.warm == 2
        clock[0] += 1000
        await pools.evict_idle()
        assert pools.warm == 0
        assert not living_below()
    finally:
        await pools.aclose()


async def test_many_calls_leave_no_process_and_no_open_file_behind(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.reward("return 1.0").project()
    await call(pools, project)
    processes, files = living_below(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        verdicts = await pools.call_rewards(project, [function("tried")], [sample()] * 100, QUICK)
        assert all(verdict.value == 1.0 for [verdict] in verdicts)
    assert living_below() == processes
    assert len(os.listdir("/proc/self/fd")) == files


async def test_a_cancelled_request_ends_its_sandbox(pools: SandboxPools, repository: Repository) -> None:
    project = repository.reward("import time; time.sleep(600)").project()
    await call(pools, project, "fine", Limits(wall_s=600))
    task = asyncio.create_task(call(pools, project, "tried", Limits(wall_s=600)))
    before = living_below()
    async with asyncio.timeout(20):
        while living_below() <= before:  # noqa: ASYNC110 - the call's fork appears
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pools.warm == 0
    assert (await call(pools, project, "fine", Limits(wall_s=600))).value == 0.5


def test_packages_are_the_named_ones_and_what_they_require() -> None:
    names = {path.name for path in importable_paths(("mcp",))}
    assert {"mcp", "pydantic", "anyio", "typing_extensions.py"} <= names
    assert not names & {"torch", "fastapi", "sqlalchemy", "aio_pika", "boto3", "fastmcp"}
    assert importable_paths(("no-such-distribution",)) == ()
