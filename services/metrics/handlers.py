"""What metrics hears and answers."""

from __future__ import annotations

from itertools import groupby

from libs.common.contracts.metrics import (
    Exposition,
    GetExposition,
    MetricPoint,
    MetricSeries,
    QueryMetrics,
    RunMetrics,
)
from libs.common.contracts.requests import Caller
from libs.common.contracts.rollouts import RolloutCompleted, RolloutFailed
from libs.common.contracts.runs import RunCancelled, RunCompleted, RunCreated, RunFailed
from libs.common.contracts.work import AttemptStarted, AttemptStepped
from libs.common.errors import Forbidden, NotFound
from libs.common.identifiers import RunId
from libs.common.unit_of_work import UnitOfWork
from services.metrics.domain import downsample, title_of
from services.metrics.exposition import exposition
from services.metrics.store import MetricsStore, Selection
from services.metrics.tables import RunRow

Uow = UnitOfWork[MetricsStore]
REWARD = "rollout/raw_reward"


async def on_run_created(fact: RunCreated, uow: Uow) -> None:
    """A run that will have points."""
    if await uow.store.run(fact.run_id) is None:
        await uow.store.add_run(_new_run(fact.run_id, fact.workspace_id))


async def on_attempt_started(fact: AttemptStarted, uow: Uow) -> None:
    """A newer attempt makes the steps behind its checkpoint again: forget the older ones."""
    if fact.work_kind != "run":
        return
    run = await _known(RunId(fact.work_id), fact.workspace_id, uow)
    if fact.epoch > run.epoch:
        run.epoch, run.step = fact.epoch, min(run.step, fact.from_step)
        await uow.store.forget_after(RunId(fact.work_id), fact.from_step, fact.epoch)


async def on_attempt_stepped(fact: AttemptStepped, uow: Uow) -> None:
    """Store a step's points; those of an older epoch are refused."""
    run = await _known(RunId(fact.work_id), fact.workspace_id, uow)
    if fact.epoch < run.epoch:
        return
    run.epoch = fact.epoch
    await uow.store.keep(RunId(fact.work_id), fact.step, fact.epoch, fact.at, fact.metrics)
    if fact.phase == "train":
        run.step, run.reward = fact.step, fact.metrics.get(REWARD, run.reward)


async def on_run_ended(fact: RunCompleted | RunFailed | RunCancelled, uow: Uow) -> None:
    """Prometheus shows runs at work alone."""
    await uow.store.end(fact.run_id)


async def on_rollout_ended(fact: RolloutCompleted | RolloutFailed, uow: Uow) -> None:
    """Count it."""
    await uow.store.count_rollout("completed" if isinstance(fact, RolloutCompleted) else "failed")


async def query_metrics(request: QueryMetrics, caller: Caller, uow: Uow) -> RunMetrics:
    """Curves of a run."""
    run = await uow.store.run(request.run_id)
    if run is None or run.workspace_id != caller.workspace():
        raise NotFound(f"no run {request.run_id}")
    chosen = request.model_dump(include={"keys", "from_step", "to_step", "since", "until"})
    rows = await uow.store.points(Selection(run_id=request.run_id, **chosen))
    series: list[MetricSeries] = []
    for key, of_key in groupby(rows, key=lambda row: row.key):
        points = [MetricPoint(step=row.step, value=row.value, at=row.at) for row in of_key]
        series.append(
            MetricSeries(
                key=key,
                title=title_of(key),
                points=downsample(points, request.max_points),
                total_points=len(points),
            )
        )
    return RunMetrics(run_id=request.run_id, series=series)


async def get_exposition(request: GetExposition, caller: Caller, uow: Uow) -> Exposition:
    """What Prometheus scrapes."""
    if caller.kind == "key":
        raise Forbidden("figures of the whole platform are the operator's: use the root key")
    return Exposition(text=exposition(await uow.store.active_runs(), await uow.store.rollout_counts()))


async def _known(run_id: RunId, workspace_id: str, uow: Uow) -> RunRow:
    run = await uow.store.run(run_id)
    if run is None:
        run = _new_run(run_id, workspace_id)
        await uow.store.add_run(run)
    return run


def _new_run(run_id: RunId, workspace_id: str) -> RunRow:
    return RunRow(run_id=run_id, workspace_id=workspace_id, epoch=0, step=0, reward=None, active=True)
