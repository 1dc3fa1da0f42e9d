"""All warm pools: one a commit, environment and set of limits; the least recently used go first.

Guaranteed here: no more than `most_pools` stay warm; a pool at work is never closed; after `aclose` no process is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from services.rewards.domain.inputs import FunctionRef, RewardInput, call_inputs
from services.rewards.domain.verdicts import RewardVerdict
from services.rewards.pool import Pool
from services.rewards.sandbox import Launcher, Limits, SandboxProject
from services.rewards.worker import Call

IDLE_S = 300.0
"""Seconds without work after which a pool's sandboxes are ended."""


class SandboxPools:
    """Calls reward functions of any project, each call in a fresh fork of a warm, walled template."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        workers: int | None = None,
        most_pools: int = 8,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`workers`: sandboxes a pool, one a processor by default. `monotonic`: seconds, for eviction."""
        self._launcher = launcher
        self._workers = workers or os.cpu_count() or 1
        self._most = most_pools
        self._monotonic = monotonic
        self._pools: dict[tuple[SandboxProject, Limits], Pool] = {}

    async def call_rewards(
        self,
        project: SandboxProject,
        functions: Sequence[FunctionRef],
        samples: Sequence[RewardInput],
        limits: Limits,
    ) -> list[list[RewardVerdict]]:
        """Every function's verdict on every sample: one list a sample, in the order of `functions`.

        Raises Unavailable when no sandbox can be started. Nothing that user code does raises here.
        """
        calls = [[Call(function, call_inputs(sample)) for function in functions] for sample in samples]
        flat = [call for row in calls for call in row]
        if flat:
            await self._run(project, limits, flat)
        return [[call.verdict for call in row if call.verdict is not None] for row in calls]

    async def _run(self, project: SandboxProject, limits: Limits, calls: list[Call]) -> None:
        key = (project, limits)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self._launcher, project, limits, self._workers)
        pool.users += 1
        try:
            await self._evict(most=self._most)
            await pool.run(calls)
        finally:
            pool.users -= 1
            pool.used_at = self._monotonic()

    async def evict_idle(self) -> None:
        """Close the pools that had no work for `IDLE_S` seconds."""
        before = self._monotonic() - IDLE_S
        for key in [key for key, pool in self._pools.items() if not pool.users and pool.used_at <= before]:
            await self._pools.pop(key).aclose()

    async def _evict(self, most: int) -> None:
        idle = sorted((key for key, pool in self._pools.items() if not pool.users), key=self._used_at)
        for key in idle[: max(0, len(self._pools) - most)]:
            await self._pools.pop(key).aclose()

    def _used_at(self, key: tuple[SandboxProject, Limits]) -> float:
        return self._pools[key].used_at

    def checkouts(self) -> set[Path]:
        """Folders that pools hold."""
        return {project.checkout for project, _ in self._pools}

    @property
    def warm(self) -> int:
        """Idle sandboxes of all pools."""
        return sum(pool.workers for pool in self._pools.values())

    async def aclose(self) -> None:
        """End every sandbox. Calls under way must have ended."""
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.aclose()
