"""A run's curves, live: what the metrics service has, then every point that it adds.

The metrics service owns points, so it is asked, and asked again every `ASK_EVERY_S`: it may hear of a step later than
the gateway does. A point is sent when it is new or has changed: a step that a new attempt took again replaces what the
old one said of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

from libs.common.contracts.metrics import MetricPoint, MetricSeries, QueryMetrics, RunMetrics
from libs.common.contracts.runs import TERMINAL, GetRun
from libs.common.errors import FieldError, Invalid, NotFound, Unavailable
from libs.common.identifiers import RunId
from services.gateway.asking import Asker
from services.gateway.event_stream import still_open
from services.gateway.sse import HEARTBEAT_S, frame, position
from services.gateway.state import Gateway

ASK_EVERY_S = 1.0
HISTORY_POINTS = 2000
LIVE_POINTS = 10_000
OVERLAP = timedelta(seconds=10)
"""How far an answer may reach back behind the newest point: longer than two facts of a run can overtake each other."""
SETTLE_ASKS = 3
"""Questions after the run has ended and nothing new came: its last points may lag behind its status."""


def position_from(last_event_id: str | None) -> datetime | None:
    """The time of the newest point that a returning client has.

    Raises:
        Invalid: no id of this stream.
    """
    if last_event_id is None:
        return None
    try:
        at = datetime.fromisoformat(last_event_id)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Invalid(
            f"{last_event_id!r} is no id of this stream",
            fields=[FieldError("header.Last-Event-ID", "the id of the last frame, as it came")],
        )
    return at.astimezone(UTC)


class Unseen:
    """Remembers which points of the last seconds were sent, and lets through the others."""

    def __init__(self, since: datetime | None) -> None:
        self.newest = since
        self._floor = since
        self._sent: dict[tuple[str, int], MetricPoint] = {}

    def pick(self, metrics: RunMetrics) -> list[MetricSeries]:
        """The series with their new points alone; series without any are left out."""
        picked: list[MetricSeries] = []
        for series in metrics.series:
            points = [point for point in series.points if self._is_new(series.key, point)]
            if points:
                picked.append(series.model_copy(update={"points": points}))
        for series in picked:
            for point in series.points:
                self._sent[series.key, point.step] = point
                self.newest = max(self.newest or point.at, point.at)
        self._forget()
        return picked

    def ask_since(self) -> datetime | None:
        """How far back the next question must reach."""
        return self.newest - OVERLAP if self.newest else None

    @property
    def remembered(self) -> int:
        """How many sent points are remembered."""
        return len(self._sent)

    def _is_new(self, key: str, point: MetricPoint) -> bool:
        if self._floor is not None and point.at <= self._floor:
            return False
        oldest = self.ask_since()
        if oldest is not None and point.at < oldest:
            return False
        return self._sent.get((key, point.step)) != point

    def _forget(self) -> None:
        oldest = self.ask_since()
        if oldest is not None:
            self._sent = {at: point for at, point in self._sent.items() if point.at >= oldest}


async def metric_frames(
    gateway: Gateway, ask: Asker, token: str, run_id: RunId, keys: list[str] | None, since: datetime | None
) -> AsyncGenerator[str]:
    """The frames of a stream: `points`, …, `end`."""
    unseen = Unseen(since)
    quiet_s, settled = 0.0, 0
    yield ": connected\n\n"
    while await still_open(gateway, token):
        status = await _status(ask, run_id)
        points = unseen.pick(await _points(ask, run_id, keys, unseen))
        if points:
            yield frame(_points_json(run_id, points), event="points", id=_id_of(unseen))
            quiet_s, settled = 0.0, 0
        elif status in TERMINAL:
            settled += 1
            if settled >= SETTLE_ASKS:
                yield frame(f'{{"status":"{status}"}}', event="end")
                return
        await gateway.tail.pause(ASK_EVERY_S)
        quiet_s += ASK_EVERY_S
        if quiet_s >= HEARTBEAT_S:
            quiet_s = 0.0
            yield position(_id_of(unseen), "heartbeat") if unseen.newest else ": heartbeat\n\n"


async def _status(ask: Asker, run_id: RunId) -> str:
    try:
        return (await ask(GetRun(run_id=run_id))).status
    except Unavailable:
        return "unknown"


async def _points(ask: Asker, run_id: RunId, keys: list[str] | None, unseen: Unseen) -> RunMetrics:
    since = unseen.ask_since()
    question = QueryMetrics(
        run_id=run_id, keys=keys, since=since, max_points=LIVE_POINTS if since else HISTORY_POINTS
    )
    try:
        return await ask(question)
    except (NotFound, Unavailable):
        # The metrics service hears of a run a moment after the registry made it.
        return RunMetrics(run_id=run_id, series=[])


def _points_json(run_id: RunId, series: list[MetricSeries]) -> str:
    return RunMetrics(run_id=run_id, series=series).model_dump_json()


def _id_of(unseen: Unseen) -> str:
    return unseen.newest.isoformat() if unseen.newest else ""
