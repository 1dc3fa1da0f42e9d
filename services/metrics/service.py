"""Wires the rooms of metrics."""

from __future__ import annotations

from pathlib import Path

from libs.common.contracts.metrics import GetExposition, QueryMetrics
from libs.common.contracts.rollouts import RolloutCompleted, RolloutFailed
from libs.common.contracts.runs import RunCancelled, RunCompleted, RunCreated, RunFailed
from libs.common.contracts.work import AttemptStarted, AttemptStepped
from libs.common.platform import Platform
from libs.common.service import Service
from services.metrics import handlers
from services.metrics.store import MetricsStore

MIGRATIONS = Path(__file__).parent / "migrations"


def build(platform: Platform) -> Service[MetricsStore]:
    """The service."""
    service = Service("metrics", platform, store=MetricsStore, migrations=MIGRATIONS)
    service.on(RunCreated, handlers.on_run_created)
    service.on(AttemptStarted, handlers.on_attempt_started)
    service.on(AttemptStepped, handlers.on_attempt_stepped)
    service.on(RunCompleted, handlers.on_run_ended)
    service.on(RunFailed, handlers.on_run_ended)
    service.on(RunCancelled, handlers.on_run_ended)
    service.on(RolloutCompleted, handlers.on_rollout_ended)
    service.on(RolloutFailed, handlers.on_rollout_ended)
    service.answer(QueryMetrics, handlers.query_metrics)
    service.answer(GetExposition, handlers.get_exposition)
    return service
