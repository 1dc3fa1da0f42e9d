"""Wires the scheduler's rooms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from libs.common.contracts.envelope import FactT
from libs.common.contracts.runs import RunCancelled, RunFailed, RunQueued
from libs.common.contracts.work import (
    AttemptEnded,
    GetQueuePosition,
    Heartbeat,
    JobCancelled,
    JobQueued,
    ListNodes,
)
from libs.common.platform import Platform
from libs.common.service import Service
from libs.common.unit_of_work import UnitOfWork
from services.scheduler import handlers
from services.scheduler.backends import Backend
from services.scheduler.backends.local import LocalProcesses
from services.scheduler.pool import Pool
from services.scheduler.store import SchedulerStore

MIGRATIONS = Path(__file__).parent / "migrations"
Handle = Callable[[FactT, UnitOfWork[SchedulerStore]], Awaitable[None]]


def build(platform: Platform, backend: Backend | None = None) -> Service[SchedulerStore]:
    """The scheduler on the backend of this machine, or on one that is given."""
    service = Service("scheduler", platform, store=SchedulerStore, migrations=MIGRATIONS)
    pool = Pool(platform, service.units, backend or LocalProcesses(platform.settings))

    def waking(handle: Handle[FactT]) -> Handle[FactT]:
        async def handled(fact: FactT, uow: UnitOfWork[SchedulerStore]) -> None:
            await handle(fact, uow)
            uow.after_commit(pool.wake)

        return handled

    service.on(RunQueued, waking(handlers.on_run_queued))
    service.on(JobQueued, waking(handlers.on_job_queued))
    service.on(RunCancelled, waking(handlers.on_run_ended_by_its_owner))
    service.on(RunFailed, waking(handlers.on_run_ended_by_its_owner))
    service.on(JobCancelled, waking(handlers.on_job_cancelled))
    service.on(AttemptEnded, waking(handlers.on_attempt_ended))
    service.answer(Heartbeat, handlers.heartbeat)
    service.answer(ListNodes, handlers.list_nodes)
    service.answer(GetQueuePosition, handlers.get_queue_position)
    service.background("pool", pool.run)
    return service
