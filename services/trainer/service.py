"""The trainer service: which facts it hears, and the door that attempts call at.

No tensor library is loaded here: attempts are processes of their own (`services.trainer.attempt`).
"""

from __future__ import annotations

from pathlib import Path

from libs.common.contracts.rollouts import GroupCompleted
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPausing
from libs.common.contracts.work import JobCancelled, LeaseGranted, LeaseLost, LeaseReleased
from libs.common.platform import Platform
from libs.common.service import Service
from services.trainer import handlers
from services.trainer.api import AttemptApi
from services.trainer.arrivals import Arrivals
from services.trainer.listening import listen
from services.trainer.store import TrainerStore

NAME = "trainer"
MIGRATIONS = Path(__file__).parent / "migrations"


def build(platform: Platform) -> Service[TrainerStore]:
    """The service over a platform."""
    service = Service(NAME, platform, store=TrainerStore, migrations=MIGRATIONS)
    arrivals = Arrivals()

    async def on_group_completed(fact: GroupCompleted, uow: handlers.Uow) -> None:
        await handlers.keep_group(fact, uow, arrivals)

    service.on(LeaseGranted, handlers.on_lease_granted)
    service.on(LeaseLost, handlers.on_lease_gone)
    service.on(LeaseReleased, handlers.on_lease_gone)
    service.on(RunPausing, handlers.on_run_pausing)
    service.on(RunCancelled, handlers.on_run_unwanted)
    service.on(RunFailed, handlers.on_run_unwanted)
    service.on(JobCancelled, handlers.on_job_cancelled)
    service.on(GroupCompleted, on_group_completed)

    app = AttemptApi(platform, service.units, arrivals).app()
    service.background("attempts", lambda: listen(app, platform.settings))
    return service
