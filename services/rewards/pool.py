"""The warm workers of one project at one commit: started when there is work, reused, replaced when they are lost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.rewards.sandbox import Launcher, Limits, SandboxProject
from services.rewards.worker import Call, Worker

_LARGEST_BATCH = 32
"""Calls that one worker gets at once: enough that the way there costs nothing, few enough to share the rest."""


class Pool:
    """At most `size` sandboxes, each with the project's modules imported."""

    def __init__(self, launcher: Launcher, project: SandboxProject, limits: Limits, size: int) -> None:
        self._launcher = launcher
        self._project = project
        self._limits = limits
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Worker] = []
        self.users = 0
        self.used_at = 0.0

    async def run(self, calls: list[Call]) -> None:
        """Give every call its verdict.

        Raises Unavailable when a sandbox can't be started; the verdicts that were reached stand.
        """
        share = min(_LARGEST_BATCH, math.ceil(len(calls) / self._size))
        batches = [calls[start : start + share] for start in range(0, len(calls), max(share, 1))]
        await asyncio.gather(*(self._run_batch(batch) for batch in batches))

    async def _run_batch(self, batch: list[Call]) -> None:
        while batch:
            async with self._worker() as worker:
                await worker.run(batch)
            batch = [call for call in batch if call.verdict is None]

    @asynccontextmanager
    async def _worker(self) -> AsyncGenerator[Worker]:
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                yield worker
            finally:
                if worker.usable:
                    self._idle.append(worker)
                else:
                    await asyncio.shield(worker.close())

    async def _start(self) -> Worker:
        return await Worker.start(self._launcher, self._project, self._limits)

    @property
    def workers(self) -> int:
        """Sandboxes that are warm and idle now."""
        return len(self._idle)

    async def aclose(self) -> None:
        """End every idle sandbox; a busy one ends with its batch."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.close() for worker in idle))
