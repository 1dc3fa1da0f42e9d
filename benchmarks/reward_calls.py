"""Calls of a reward function: a warm pool of the product beside what a user would write instead.

Three ways in one run, of a trivial function and of one that uses numpy:
- `warm_pool`: walls, and a fresh fork a call;
- `bubblewrap_a_call`: walls, and a new sandbox a call;
- `bare_pool`: a `multiprocessing` pool without walls whose workers serve one call each (the isolation of a fork a call);
- `shared_pool`: the same pool with workers that live on, so that every call sees what the calls before left.

`p99_ms` is of one call: in `warm_pool` from its fork to its answer, in the others from hand-over to answer.

Usage: `python benchmarks/reward_calls.py [--calls N]`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from services.rewards.domain.inputs import FunctionRef, RewardInput
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher, Limits, SandboxProject

WORKERS = os.cpu_count() or 1
GROUP = 16
LIMITS = Limits(wall_s=30)
FUNCTIONS = {
    "trivial": "def score(solution_str, ground_truth, extra_info=None):\n    return float(solution_str == ground_truth)\n",
    "numpy": (
        "import numpy\n"
        "def score(solution_str, ground_truth, extra_info=None):\n"
        "    return float(numpy.allclose(numpy.fromstring(solution_str, sep=' '), 7.0))\n"
    ),
}
_namespace: dict[str, Callable[..., float]] = {}


def _load(source: str) -> None:
    exec(source, _namespace)


def _timed_call(_: int) -> float:
    started = time.perf_counter()
    _namespace["score"](solution_str="7", ground_truth="7")
    return time.perf_counter() - started


def bare_pool(source: str, calls: int, lives: int | None) -> dict[str, float]:
    """Calls/s and p99 of round trips through a bare pool; `lives`: calls that a worker serves before it is replaced."""
    context = multiprocessing.get_context("fork")
    _load(source)
    durations: list[float] = []
    with context.Pool(WORKERS, maxtasksperchild=lives) as pool:
        pool.map(_timed_call, range(WORKERS), chunksize=1)
        started = time.perf_counter()
        sent: dict[int, float] = {}

        def back(index: int) -> Callable[[float], None]:
            return lambda _: durations.append(time.perf_counter() - sent[index])

        waiting = []
        for index in range(calls):
            sent[index] = time.perf_counter()
            waiting.append(pool.apply_async(_timed_call, (index,), callback=back(index)))
            if len(waiting) >= GROUP:
                waiting.pop(0).get()
        for one in waiting:
            one.get()
        seconds = time.perf_counter() - started
    return _figures(calls, seconds, durations)


async def warm_pool(launcher: Launcher, project: SandboxProject, calls: int) -> dict[str, float]:
    """Groups of calls, as many at a time as there are workers, each call in a fork of a warm template."""
    pools = SandboxPools(launcher, workers=WORKERS)
    ref, one = (
        FunctionRef("f.score", "reward_fn/f.py", "score"),
        RewardInput("s", [{"role": "assistant", "content": "7"}], "7"),
    )
    durations: list[float] = []

    async def group() -> None:
        verdicts = await pools.call_rewards(project, [ref], [one] * GROUP, LIMITS)
        assert all(verdict.value == 1.0 for [verdict] in verdicts), verdicts[0][0].error
        durations.extend(verdict.duration_ms / 1000 for [verdict] in verdicts)

    await group()
    durations.clear()
    started = time.perf_counter()
    groups = iter(range(calls // GROUP))

    async def lane() -> None:
        for _ in groups:
            await group()

    await asyncio.gather(*(lane() for _ in range(WORKERS)))
    seconds = time.perf_counter() - started
    await pools.aclose()
    return _figures(calls // GROUP * GROUP, seconds, durations)


async def bubblewrap_a_call(launcher: Launcher, project: SandboxProject, calls: int) -> dict[str, float]:
    """A sandbox of its own for every call, as many at a time as there are processors."""
    ref, one = (
        FunctionRef("f.score", "reward_fn/f.py", "score"),
        RewardInput("s", [{"role": "assistant", "content": "7"}], "7"),
    )
    durations: list[float] = []
    left = iter(range(calls))

    async def lane() -> None:
        for _ in left:
            began = time.perf_counter()
            pools = SandboxPools(launcher, workers=1)
            [[verdict]] = await pools.call_rewards(project, [ref], [one], LIMITS)
            await pools.aclose()
            assert verdict.value == 1.0, verdict.error
            durations.append(time.perf_counter() - began)

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(WORKERS)))
    return _figures(calls, time.perf_counter() - started, durations)


def _figures(calls: int, seconds: float, durations: list[float]) -> dict[str, float]:
    ordered = sorted(durations)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {"calls_per_second": round(calls / seconds, 1), "p99_ms": round(1000 * p99, 2)}


async def measure(source: str, calls: int) -> dict[str, dict[str, float] | float]:
    """All four ways with one function."""
    with tempfile.TemporaryDirectory(prefix="osmosis-bench-") as folder:
        root = Path(folder)
        await asyncio.to_thread(root.chmod, 0o755)
        (root / "reward_fn").mkdir()
        await asyncio.to_thread((root / "reward_fn" / "f.py").write_text, source)
        launcher = Launcher("bubblewrap", ("numpy",))
        project = SandboxProject(root, "bench")
        warm = await warm_pool(launcher, project, calls)
        cold = await bubblewrap_a_call(launcher, project, max(8, calls // 100))
        launcher.close()
    bare, shared = bare_pool(source, calls, 1), bare_pool(source, calls, None)
    rate = warm["calls_per_second"]
    return {
        "warm_pool": warm,
        "bubblewrap_a_call": cold,
        "bare_pool": bare,
        "shared_pool": shared,
        "times_bubblewrap_a_call": round(rate / cold["calls_per_second"], 1),
        "of_bare_pool": round(rate / bare["calls_per_second"], 2),
        "of_shared_pool": round(rate / shared["calls_per_second"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--calls", type=int, default=2000, help="calls of each way (a hundredth for a sandbox a call)"
    )
    calls = parser.parse_args().calls
    results: dict[str, dict[str, dict[str, float] | float]] = {}
    for name, source in FUNCTIONS.items():
        results[name] = asyncio.run(measure(source, calls))
        print(name)
        for way, figures in results[name].items():
            print(f"  {way:24} {figures}")
    print(json.dumps({"workers": WORKERS, "calls": calls, **results}))


if __name__ == "__main__":
    main()
