"""Work in lines: one job at a time in a line, in the order of arrival; different lines side by side.

Both buses hand facts to handlers through this, so order within a subject means the same on either. A job that has to
wait keeps its line but gives up its place: what fails holds back nobody but those behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

Job = Callable[[], Awaitable[float | None]]
"""One try; answers after how many seconds to try again, None when the next of the line may come. It must not raise."""


class Lines:
    """Jobs in lines, at most `width` of them at work at once."""

    def __init__(self, width: int, name: str) -> None:
        self._name = name
        self._places = asyncio.Semaphore(width)
        self._lines: dict[str, deque[Job]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._stopped = False

    @property
    def idle(self) -> bool:
        """Whether nothing is in any line."""
        return not self._lines

    def add(self, line: str, job: Job) -> None:
        """Put a job at the end of a line; after `stop` it is dropped."""
        if self._stopped:
            return
        waiting = self._lines.get(line)
        if waiting is not None:
            waiting.append(job)
            return
        self._lines[line] = deque([job])
        task = asyncio.create_task(self._work_off(line), name=f"{self._name}:{line}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wake(self) -> None:
        """Let every job that waits try again now: what it waited for may be void."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def stop(self, grace_s: float) -> None:
        """Start no further job; those at work have `grace_s` seconds to end, then they are cancelled."""
        self._stopped = True
        self.wake()
        tasks = set(self._tasks)
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work_off(self, line: str) -> None:
        waiting = self._lines[line]
        try:
            while waiting:
                await self._do(waiting[0])
                waiting.popleft()
        finally:
            del self._lines[line]

    async def _do(self, job: Job) -> None:
        while True:
            async with self._places:
                if self._stopped:
                    return
                again_s = await job()
            if again_s is None or self._stopped:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._woken.wait()
