"""Follows the event log and wakes the streams that wait for it.

The handler of this process wakes the tail at once; what another replica logged is found by polling. Streams read the
log themselves: the tail tells them only up to where their workspace has news, so a missed wake costs time, never an
event.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from libs.common.clock import Clock
from libs.common.contracts.workspaces import KeyRevoked
from libs.common.identifiers import KeyId, WorkspaceId
from libs.common.unit_of_work import UnitsOfWork
from services.gateway.store import GatewayStore

POLL_S = 0.5
BATCH = 1000
KEEP_EVENTS = timedelta(days=14)
CLEAN_EVERY_S = 3600.0


class EventTail:
    """One a process. `newest` is the last `seq` that it saw committed."""

    def __init__(
        self, units: UnitsOfWork[GatewayStore], clock: Clock, *, revoked: Callable[[KeyId], None]
    ) -> None:
        self._units = units
        self._clock = clock
        self._revoked = revoked
        self._grown = asyncio.Event()
        self._news = asyncio.Condition()
        self._latest: defaultdict[WorkspaceId, int] = defaultdict(int)
        self._closing = asyncio.Event()
        self.newest = 0

    @property
    def closing(self) -> bool:
        """Whether streams must end: the process stops, and clients go on from their cursor elsewhere."""
        return self._closing.is_set()

    def wake(self) -> None:
        """The log has grown."""
        self._grown.set()

    async def run(self) -> None:
        """Follow the log until cancelled."""
        async with self._units.read() as store:
            self.newest = max(self.newest, (await store.extent()).newest)
        while True:
            self._grown.clear()
            while await self._advance() == BATCH:
                pass
            with suppress(TimeoutError):
                # Not wait_for: on Python 3.11 it loses a cancellation that comes with the event.
                async with asyncio.timeout(POLL_S):
                    await self._grown.wait()

    async def _advance(self) -> int:
        async with self._units.read() as store:
            events = await store.of_all(after=self.newest, limit=BATCH)
        for event in events:
            self._latest[event.workspace_id] = event.seq
            if event.key == KeyRevoked.KEY:
                self._revoked(KeyId(event.subject))
        if events:
            self.newest = events[-1].seq
            async with self._news:
                self._news.notify_all()
        return len(events)

    async def wait_beyond(self, workspace_id: WorkspaceId, seq: int, timeout_s: float) -> bool:
        """Wait until the workspace has an event above `seq`; False when none came in time or streams must end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(lambda: self.closing or self._latest[workspace_id] > seq)
        return self._latest[workspace_id] > seq

    async def pause(self, seconds: float) -> None:
        """Let time pass, or less where streams must end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def close(self) -> None:
        """End every stream."""
        self._closing.set()
        async with self._news:
            self._news.notify_all()

    async def clean(self) -> None:
        """Forget old events, every hour until cancelled."""
        while True:
            async with self._units.begin() as uow:
                await uow.store.forget(self._clock.now() - KEEP_EVENTS)
            await asyncio.sleep(CLEAN_EVERY_S)
