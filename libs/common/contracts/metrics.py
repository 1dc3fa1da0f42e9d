"""Questions about training curves. Owner of points: metrics."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from libs.common.contracts.envelope import Contract
from libs.common.contracts.requests import Reply, Request
from libs.common.identifiers import RunId


class MetricPoint(Contract):
    """A value at a step. After down-sampling it stands for a bucket, and `low`/`high` are the bucket's extremes."""

    step: int
    value: float
    at: datetime
    low: float | None = None
    high: float | None = None


class MetricSeries(Contract):
    """The points of one metric, by step."""

    key: str
    title: str
    points: list[MetricPoint]
    total_points: int


class RunMetrics(Reply):
    """Curves of a run."""

    run_id: RunId
    series: list[MetricSeries]


class QueryMetrics(Request[RunMetrics], service="metrics", name="query_metrics"):
    """Curves of a run of the caller's workspace: by keys, steps and times, down-sampled to `max_points` each."""

    run_id: RunId
    keys: list[str] | None = None
    from_step: int | None = None
    to_step: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    max_points: int = Field(default=1000, ge=2, le=10_000)


class Exposition(Reply):
    """Prometheus' text format."""

    text: str


class GetExposition(Request[Exposition], service="metrics", name="get_exposition"):
    """What Prometheus scrapes (operator only)."""
