"""The rollout broker: which facts it hears, what it answers, and what it runs."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from libs.common.contracts.rollouts import BatchRequested, GetRollout, GroupScored, ListRollouts
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPaused
from libs.common.contracts.work import AttemptEnded, AttemptStarted, LeaseGranted, LeaseLost
from libs.common.identifiers import RolloutId, new_id
from libs.common.platform import Platform
from libs.common.service import Service
from services.rollout.api import ChatApi
from services.rollout.broker import Broker
from services.rollout.chat import Chats
from services.rollout.claims import Claims
from services.rollout.endings import Endings
from services.rollout.engine import EngineClient
from services.rollout.handlers import Batches, Scores
from services.rollout.listening import listen
from services.rollout.live import LiveRollouts
from services.rollout.models import Renderers
from services.rollout.preparation import Preparation
from services.rollout.reading import Reading
from services.rollout.rollout_run import RolloutRunner
from services.rollout.rows import DatasetRows
from services.rollout.settings import BrokerSettings
from services.rollout.store import RolloutStore

NAME = "rollout"
MIGRATIONS = Path(__file__).parent / "migrations"
GROUPS_SCORED_AT_ONCE = 8


def build(platform: Platform) -> Service[RolloutStore]:
    """The service over a platform."""
    service = Service(NAME, platform, store=RolloutStore, migrations=MIGRATIONS)
    chosen = BrokerSettings()
    live = LiveRollouts()
    engine = EngineClient()
    chats = Chats(engine)
    broker = _broker(service, chosen, live, chats)

    batches = Batches(broker)
    service.on(BatchRequested, batches.on_batch_requested)
    service.on(LeaseGranted, batches.on_lease_granted)
    service.on(AttemptStarted, batches.on_lease_granted)
    service.on(LeaseLost, batches.on_lease_lost)
    service.on(AttemptEnded, batches.on_attempt_ended)
    service.on(RunCancelled, batches.on_run_over)
    service.on(RunFailed, batches.on_run_over)
    service.on(RunPaused, batches.on_run_paused)
    scores = Scores(service.units, platform.blobs)
    service.work(GroupScored, scores.on_group_scored, concurrency=GROUPS_SCORED_AT_ONCE)

    reading = Reading(platform, service.units)
    service.answer_outside(ListRollouts, reading.list_rollouts)
    service.answer_outside(GetRollout, reading.get_rollout)

    async def keep_engine_client() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await engine.aclose()

    app = ChatApi(live, chats, platform.clock, timeout_s=chosen.chat_timeout_s).app()
    service.background("groups", broker.run)
    service.background("engine client", keep_engine_client)
    service.background("chats", lambda: listen(app, platform.settings))
    return service


def _broker(
    service: Service[RolloutStore], chosen: BrokerSettings, live: LiveRollouts, chats: Chats
) -> Broker:
    platform = service.platform
    cache = platform.settings.data_dir.absolute() / "cache"
    runner = RolloutRunner(
        platform,
        chats,
        live,
        places=chosen.in_flight,
        new_rollout_id=lambda: RolloutId(new_id("rollout", platform.clock.now(), secrets.randbits)),
    )
    return Broker(
        Claims(service.units, platform.clock, service.address),
        Preparation(
            platform.blobs,
            Renderers(platform.blobs, cache / "tokenizers"),
            DatasetRows(platform.blobs, cache / "datasets"),
        ),
        runner,
        Endings(service.units, platform.blobs, service.address),
        in_flight=chosen.in_flight,
        alone=platform.settings.embedded,
    )
