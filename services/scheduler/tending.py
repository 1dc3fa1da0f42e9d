"""Makes the processes of this node match its leases.

Guaranteed: a process is started only after its lease is committed, and a lease whose process was never started gets
one at the next round; a lease's devices are free only when its process is gone; a lease whose attempt died or fell
silent is lost at once, and nothing is started on its devices before the old process is dead; a process whose lease is
no longer active here, whoever decided so, is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from libs.common.platform import Platform
from libs.common.unit_of_work import UnitsOfWork
from services.scheduler.backends import Backend, Exit, ProcessRef, Start
from services.scheduler.domain import LeaseEvent, is_silent
from services.scheduler.handlers import apply
from services.scheduler.store import SchedulerStore
from services.scheduler.tables import LeaseRow

END_GRACE = timedelta(seconds=12)
"""From the end of an attempt (or its work) until SIGTERM: it hears `cancel` by its heartbeat, or says goodbye."""
TERM_GRACE = timedelta(seconds=5)
"""From SIGTERM until SIGKILL."""
LAST_WORDS = timedelta(seconds=3)
"""From the end of a process until its lease is lost: its last words may still travel."""
LAST_WORDS_AFTER_SUCCESS = timedelta(seconds=60)
"""The same for a process whose status says that the trainer took its last words: they are on their way."""

_log = structlog.get_logger(__name__)


@dataclass
class _Attempt:
    """A process that this scheduler started, and the devices that it uses until it is dead."""

    process: ProcessRef
    devices: tuple[str, ...]
    asked_to_end: bool = False


class Attempts:
    """The attempts of this node."""

    def __init__(self, platform: Platform, units: UnitsOfWork[SchedulerStore], backend: Backend) -> None:
        self._platform = platform
        self._units = units
        self._backend = backend
        self._mine: dict[str, _Attempt] = {}
        self._died: dict[str, datetime] = {}
        self._missed_trainer = False

    async def tend(self, leases: Sequence[LeaseRow], hearing_since: datetime) -> bool:
        """Bring every active lease of this node a step further; whether any lease moved.

        `hearing_since`: since when this scheduler hears what is said; earlier silence proves nothing.
        """
        self._end_strays({lease.id for lease in leases})
        moved = [await self._tend(lease, hearing_since) for lease in leases]
        return any(moved)

    async def end_all(self) -> None:
        """The platform stops: end what this node started; the next start finds the leases and gives them back."""
        processes = [attempt.process for attempt in self._mine.values()]
        for process in processes:
            self._backend.terminate(process)
        deadline = asyncio.get_running_loop().time() + TERM_GRACE.total_seconds()
        # A process tells nobody that it ends: it is looked at.
        while any(map(self._backend.alive, processes)) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for process in processes:
            self._backend.kill(process)

    def _end_strays(self, active: set[str]) -> None:
        for lease_id, attempt in list(self._mine.items()):
            if lease_id in active:
                continue
            if self._backend.alive(attempt.process):
                self._backend.kill(attempt.process)
            else:
                del self._mine[lease_id]
        self._died = {lease_id: at for lease_id, at in self._died.items() if lease_id in active}

    async def _tend(self, lease: LeaseRow, hearing_since: datetime) -> bool:
        attempt = self._mine.get(lease.id)
        if attempt is None and lease.pid is not None:
            return await self._tend_orphan(lease, hearing_since)
        if attempt is None:
            return await (self._start(lease) if lease.state == "held" else self._move(lease, "gone"))
        if lease.pid is None:
            await self._note(lease, attempt.process)
        how = self._backend.ended(attempt.process)
        if how is None:
            return await self._tend_running(lease, attempt, hearing_since)
        if self._backend.alive(attempt.process):
            return False
        return await self._bury(lease, how, hearing_since)

    async def _tend_orphan(self, lease: LeaseRow, hearing_since: datetime) -> bool:
        """Started by an earlier life of this scheduler: its devices are taken until it is dead, its epoch is over."""
        process = ProcessRef(lease.pid or 0, lease.pid_started or "")
        if self._backend.alive(process):
            self._backend.kill(process)
            return False
        how = Exit(said=False, text="the scheduler was started anew")
        return await self._bury(lease, how, hearing_since)

    async def _tend_running(self, lease: LeaseRow, attempt: _Attempt, hearing_since: datetime) -> bool:
        now = self._platform.clock.now()
        if lease.state == "releasing":
            since = now - (lease.releasing_since or lease.granted_at)
            if since >= END_GRACE + TERM_GRACE:
                self._backend.kill(attempt.process)
            elif since >= END_GRACE and not attempt.asked_to_end:
                attempt.asked_to_end = True
                self._backend.terminate(attempt.process)
            return False
        ttl = timedelta(seconds=self._platform.settings.lease_ttl_s)
        if not is_silent(lease.granted_at, lease.heartbeat_at, now, ttl, hearing_since):
            return False
        self._backend.kill(attempt.process)
        return await self._move(lease, "lose", "its attempt fell silent")

    async def _bury(self, lease: LeaseRow, how: Exit, hearing_since: datetime) -> bool:
        """The process is gone: release what was ended, and lose what said nothing once its last words had time."""
        if lease.state == "releasing":
            return await self._move(lease, "gone")
        now = self._platform.clock.now()
        died = self._died.setdefault(lease.id, now)
        if now - max(died, hearing_since) < (LAST_WORDS_AFTER_SUCCESS if how.said else LAST_WORDS):
            return False
        said = ", but how its work ended was never heard" if how.said else ""
        return await self._move(lease, "lose", how.text + said)

    async def _start(self, lease: LeaseRow) -> bool:
        in_use = {device for attempt in self._mine.values() for device in attempt.devices}
        if in_use & set(lease.devices):
            return False  # a stray that was killed is not dead yet
        address = await asyncio.to_thread(self._trainer_url)
        if address is None:
            return False
        start = Start(lease.id, lease.work_id, lease.epoch, tuple(lease.devices))
        try:
            process = self._backend.start(start, address)
        except OSError as error:
            return await self._move(lease, "lose", f"its attempt could not be started: {error}")
        self._mine[lease.id] = _Attempt(process, start.devices)
        await self._note(lease, process)
        _log.info("attempt started", work=lease.work_id, epoch=lease.epoch, pid=process.pid)
        return False

    async def _note(self, lease: LeaseRow, process: ProcessRef) -> None:
        async with self._units.begin() as uow:
            await uow.store.note_process(lease.id, process.pid, process.started)

    async def _move(self, lease: LeaseRow, event: LeaseEvent, reason: str = "") -> bool:
        async with self._units.begin() as uow:
            row = await uow.store.lease(lease.id)
            if row is not None:
                apply(row, event, uow, reason)
        return True

    def _trainer_url(self) -> str | None:
        """Where attempts reach the trainer service: as set, else as it wrote down when it began to listen."""
        if self._platform.settings.trainer_url:
            return self._platform.settings.trainer_url
        file = self._platform.settings.data_dir.absolute() / "run" / "trainer.url"
        address = file.read_text().strip() if file.exists() else None
        if address is None and not self._missed_trainer:
            _log.warning("the trainer's address is not known yet; set OSMOSIS_TRAINER_URL", file=str(file))
        self._missed_trainer = address is None
        return address
