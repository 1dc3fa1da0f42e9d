"""What a test says to metrics, and what it asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from libs.common.clock import ManualClock
from libs.common.contracts.metrics import GetExposition, MetricSeries, QueryMetrics, RunMetrics
from libs.common.contracts.requests import Caller
from libs.common.contracts.runs import RunCompleted, RunCreated
from libs.common.contracts.work import AttemptStarted, AttemptStepped, WorkKind
from libs.common.database import Database
from libs.common.identifiers import ProjectId, RunId, WorkId, WorkspaceId
from libs.common.unit_of_work import UnitsOfWork
from services.metrics import handlers
from services.metrics.store import MetricsStore

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
WORKSPACE = WorkspaceId("ws_1")
OWNER = Caller(kind="key", workspace_id=WORKSPACE, key_id="key_1")
REWARD = "rollout/raw_reward"


def at(step: int) -> datetime:
    """When a step was done."""
    return START + timedelta(minutes=step)


class World:
    """The handlers and their store."""

    def __init__(self, database: Database) -> None:
        self.units = UnitsOfWork(database, MetricsStore, source="metrics", clock=ManualClock(START))

    async def create(self, run: str = "run_1", workspace: WorkspaceId = WORKSPACE) -> None:
        """A run is made."""
        fact = RunCreated(
            workspace_id=workspace, run_id=RunId(run), project_id=ProjectId("prj"), name="a run"
        )
        async with self.units.begin() as uow:
            await handlers.on_run_created(fact, uow)

    async def start(self, epoch: int, from_step: int = 0, run: str = "run_1", kind: WorkKind = "run") -> None:
        """An attempt starts."""
        fact = AttemptStarted(
            workspace_id=WORKSPACE, work_id=WorkId(run), work_kind=kind, epoch=epoch, from_step=from_step
        )
        async with self.units.begin() as uow:
            await handlers.on_attempt_started(fact, uow)

    async def step(
        self,
        step: int,
        epoch: int = 1,
        run: str = "run_1",
        phase: Literal["train", "validation"] = "train",
        **metrics: float,
    ) -> None:
        """A step is done; `reward=0.5` for the training reward."""
        named = {REWARD if key == "reward" else key: value for key, value in metrics.items()}
        fact = AttemptStepped(
            workspace_id=WORKSPACE,
            work_id=WorkId(run),
            epoch=epoch,
            step=step,
            total_steps=100,
            phase=phase,
            metrics=named,
            at=at(step),
        )
        async with self.units.begin() as uow:
            await handlers.on_attempt_stepped(fact, uow)

    async def complete(self, run: str = "run_1") -> None:
        """A run completes."""
        fact = RunCompleted(workspace_id=WORKSPACE, run_id=RunId(run), project_id=ProjectId("prj"), step=1)
        async with self.units.begin() as uow:
            await handlers.on_run_ended(fact, uow)

    async def query(self, run: str = "run_1", caller: Caller = OWNER, **chosen: Any) -> RunMetrics:
        """Ask for curves."""
        async with self.units.begin() as uow:
            request = QueryMetrics(run_id=RunId(run), **chosen)
            return await handlers.query_metrics(request, caller, uow)

    async def curve(self, key: str = REWARD, **chosen: Any) -> list[tuple[int, float]]:
        """The points of one curve."""
        (series,) = (await self.query(keys=[key], **chosen)).series or [
            MetricSeries(key=key, title="", points=[], total_points=0)
        ]
        return [(point.step, point.value) for point in series.points]

    async def exposition(self, caller: Caller | None = None) -> str:
        """What Prometheus scrapes."""
        async with self.units.begin() as uow:
            asked = await handlers.get_exposition(GetExposition(), caller or Caller(kind="root"), uow)
            return asked.text
