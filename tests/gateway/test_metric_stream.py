"""Live curves: what is known, then every new point once, then the end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from libs.common.contracts.metrics import MetricPoint, MetricSeries, QueryMetrics, RunMetrics
from libs.common.contracts.runs import GetRun
from services.gateway.metric_stream import Unseen
from tests.gateway.samples import AT, RUN, RUN_VIEW
from tests.gateway.worlds import Frame, World, take

PATH = "/v1/runs/run_1/metrics/stream"


def point(step: int, value: float = 0.5, seconds: int | None = None) -> MetricPoint:
    at = AT + timedelta(seconds=step * 20 if seconds is None else seconds)
    return MetricPoint(step=step, value=value, at=at)


def metrics(*points: MetricPoint, key: str = "rollout/raw_reward") -> RunMetrics:
    series = MetricSeries(key=key, title="Reward", points=list(points), total_points=len(points))
    return RunMetrics(run_id=RUN, series=[series] if points else [])


class Curves:
    """The metrics service's points, as a test adds them."""

    def __init__(self, world: World) -> None:
        self.points: list[MetricPoint] = []
        self.status = "running"
        world.scripted[QueryMetrics] = self.answer
        world.scripted[GetRun] = lambda _: RUN_VIEW.model_copy(update={"status": self.status})

    def answer(self, query: QueryMetrics) -> RunMetrics:
        since = query.since
        return metrics(*(p for p in self.points if since is None or p.at >= since))


def steps(frames: list[Frame]) -> list[int]:
    return [p["step"] for frame in frames for series in frame.data["series"] for p in series["points"]]


async def test_history_comes_first_then_new_points_then_the_end(world: World) -> None:
    curves = Curves(world)
    curves.points = [point(1), point(2)]
    async with asyncio.timeout(15), world.client() as client, client.stream("GET", PATH) as answer:
        frames: list[Any] = []
        lines = answer.aiter_lines()
        event = ""
        async for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                frames.append((event, value))
                if len(frames) == 1:
                    curves.points.append(point(3))
                elif len(frames) == 2:
                    curves.status = "completed"
    assert [event for event, _ in frames] == ["points", "points", "end"]
    assert '"step":1' in frames[0][1] and '"step":2' in frames[0][1]
    assert '"step":3' in frames[1][1] and '"step":2' not in frames[1][1]
    assert frames[2][1] == '{"status":"completed"}'


async def test_a_client_that_comes_back_gets_what_it_has_not_seen(world: World) -> None:
    curves = Curves(world)
    curves.points = [point(1), point(2)]
    async with asyncio.timeout(15), world.client() as client:
        async with client.stream("GET", PATH) as answer:
            (first,) = await take(answer, 1)
        curves.points.append(point(3))
        async with client.stream("GET", PATH, headers={"Last-Event-ID": first.id}) as answer:
            (rest,) = await take(answer, 1)
    assert steps([first]) == [1, 2]
    assert steps([rest]) == [3]


@pytest.mark.parametrize("last", ["yesterday", "2026-12-01T12:00:00"])
async def test_an_id_of_another_stream_is_refused(world: World, last: str) -> None:
    async with world.client() as client:
        answer = await client.get(PATH, headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "header.Last-Event-ID")


def test_a_step_that_was_taken_again_is_sent_again_and_an_unchanged_one_is_not() -> None:
    unseen = Unseen(None)
    assert len(unseen.pick(metrics(point(1), point(2)))[0].points) == 2
    assert unseen.pick(metrics(point(1), point(2))) == []
    (changed,) = unseen.pick(metrics(point(1), point(2, 0.9, seconds=45)))
    assert [(p.step, p.value) for p in changed.points] == [(2, 0.9)]


def test_what_was_sent_is_remembered_only_as_long_as_it_can_come_again() -> None:
    unseen = Unseen(None)
    for step in range(1000):
        unseen.pick(metrics(point(step)))
    assert unseen.remembered <= 2
    assert unseen.ask_since() == point(999).at - timedelta(seconds=10)
