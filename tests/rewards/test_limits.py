"""Every limit ends in a verdict that says which, and the next call is right."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Limits
from tests.rewards.repositories import Repository, call, living_below

SHORT = Limits(
    wall_s=1.5, cpu_s=1, memory_bytes=256 << 20, processes=32, file_bytes=1 << 20, tmp_bytes=4 << 20
)

ENDED = {
    "a loop": ("while True: pass", SHORT, "timeout", "processor time"),
    "a sleep": ("import time; time.sleep(60)", SHORT, "timeout", "longer than 1.5 seconds"),
    "a stopped process": ("import signal; os.kill(os.getpid(), signal.SIGSTOP)", SHORT, "timeout", "longer"),
    "ignored signals": (
        "import signal, time\nfor n in (1, 2, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        SHORT,
        "timeout",
        "seconds",
    ),
    "endless output": ("while True: print('x' * 4096)", SHORT, "timeout", "stopped"),
    "a list that grows": ("x = []\nwhile True: x.append('a' * (8 << 20))", SHORT, "memory", "MemoryError"),
    "a fork bomb": (
        "while True:\n    try: os.fork()\n    except OSError: pass",
        SHORT,
        "timeout",
        "stopped",
    ),
    "an early exit": ("os._exit(0)", SHORT, "crash", "without a result"),
    "its own death": ("os.kill(os.getpid(), 9)", SHORT, "crash", "SIGKILL"),
    "everybody's death": ("os.kill(-1, 9); import time; time.sleep(9); return 1.0", SHORT, "crash", "ended"),
}

REFUSED = {
    "a huge mapping": "import mmap; mmap.mmap(-1, 4 << 30); return 1.0",
    "a large file": "open('/tmp/f', 'wb').write(b'x' * (2 << 20)); return 1.0",
    "a full /tmp": "for n in range(8): open(f'/tmp/{n}', 'wb').write(b'x' * (1 << 20))\nreturn 1.0",
    "a full /dev/shm": "for n in range(8): open(f'/dev/shm/{n}', 'wb').write(b'x' * (1 << 20))\nreturn 1.0",
    "many open files": "x = [open('/dev/null') for _ in range(2000)]; return 1.0",
    "many processes": """
        pids = []
        for _ in range(64):
            pid = os.fork()
            if pid == 0:
                import time; time.sleep(60)
            pids.append(pid)
        return 1.0
    """,
    "many threads": """
        import threading, time
        for _ in range(64): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return 1.0
    """,
}


@pytest.mark.parametrize(("body", "limits", "kind", "says"), ENDED.values(), ids=ENDED)
async def test_a_call_that_goes_too_far_is_ended(
    pools: SandboxPools, repository: Repository, body: str, limits: Limits, kind: str, says: str
) -> None:
    project = repository.reward(body).project()
    verdict = await call(pools, project, limits=limits)
    assert (verdict.value, verdict.error_kind) == (None, kind)
    assert says in (verdict.error or "")
    assert (await call(pools, project, "fine", limits)).value == 0.5


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
async def test_more_than_allowed_is_refused_to_the_call(
    pools: SandboxPools, repository: Repository, body: str
) -> None:
    project = repository.reward(body).project()
    verdict = await call(pools, project, limits=SHORT)
    assert verdict.value is None
    assert verdict.error_kind in ("exception", "memory")
    assert (await call(pools, project, "fine", SHORT)).value == 0.5


async def test_a_hundred_megabytes_of_output_are_cut_and_counted(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.reward("for _ in range(1000): print('x' * 100_000)\nreturn 1.0").project()
    verdict = await call(pools, project)
    assert verdict.value == 1.0
    assert len(verdict.output) < 20_000
    assert "[cut: 100001000 bytes were printed" in verdict.output


async def test_output_below_python_is_captured_too(pools: SandboxPools, repository: Repository) -> None:
    project = repository.reward("os.write(1, b'one '); os.write(2, b'two'); return 1.0").project()
    assert (await call(pools, project)).output == "one two"


async def test_what_a_call_started_does_not_outlive_it(pools: SandboxPools, repository: Repository) -> None:
    project = repository.reward(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                import signal, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True: time.sleep(1)
            os._exit(0)
        return 1.0
        """
    ).project()
    assert (await call(pools, project, "fine")).value == 0.5
    before = living_below()
    assert (await call(pools, project)).value == 1.0
    assert living_below() == before


async def test_a_module_that_never_ends_its_import_is_an_import_error(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.write("reward_fn/scores.py", "import time; time.sleep(600)").project()
    verdict = await call(pools, project, limits=replace(SHORT, import_s=0.2))
    assert verdict.error_kind == "import"
    assert "took over 0.2 seconds" in (verdict.error or "")


async def test_a_module_that_ends_the_process_is_an_import_error(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.write("reward_fn/scores.py", "import os; os._exit(1)").project()
    verdict = await call(pools, project)
    assert (verdict.error_kind, verdict.error) == (
        "import",
        "importing reward_fn/scores.py ended the process",
    )


async def test_one_sample_that_kills_its_sandbox_costs_no_other_its_verdict(
    pools: SandboxPools, repository: Repository
) -> None:
    from tests.rewards.repositories import QUICK, function, sample

    project = repository.reward(
        "if solution_str == '3': os.kill(-1, 9)\nreturn float(solution_str)"
    ).project()
    samples = [sample(str(number)) for number in range(8)]
    verdicts = await pools.call_rewards(project, [function("tried")], samples, QUICK)
    values = [verdict.value for [verdict] in verdicts]
    assert values == [0.0, 1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0]


async def test_no_process_is_left_when_the_pools_are_closed(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.reward("return 1.0").project()
    await call(pools, project)
    assert living_below()
    await pools.aclose()
    async with asyncio.timeout(10):
        while living_below():  # noqa: ASYNC110 - the kernel tears the namespace down
            await asyncio.sleep(0.01)
