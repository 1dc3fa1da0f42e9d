"""A gateway's answers by path, for tests of the demonstration's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from examples.demo.rest import Rest

Answer = Callable[[httpx.Request], Any]


class Answers:
    """Paths and what they answer: a JSON value, a response, or a function of the request. Anything else is a 404."""

    def __init__(self) -> None:
        self.by_path: dict[str, Any] = {}
        self.asked: list[httpx.Request] = []

    def __setitem__(self, call: str, answer: Any) -> None:
        self.by_path[call] = answer

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.by_path.get(f"{request.method} {request.url.path}")
        if callable(answer):
            answer = answer(request)
        if answer is None:
            return httpx.Response(404, json={"title": "Not found", "detail": request.url.path})
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def rest(self) -> Rest:
        return Rest("http://gateway", "osm_key", httpx.MockTransport(self.handle))


def run_view(**changes: Any) -> dict[str, Any]:
    """A run as the gateway shows it."""
    return {
        "id": "run_1",
        "name": "additions",
        "status": "running",
        "step": 2,
        "total_steps": 4,
        "error": None,
        "started_at": "2026-12-01T12:00:00+00:00",
        "config": {"training": {"global_batch_size": 64}},
        **changes,
    }


def curves(*points: tuple[str, int, float, str]) -> dict[str, Any]:
    """`(key, step, value, at)` as the gateway shows them."""
    series: dict[str, list[dict[str, Any]]] = {}
    for key, step, value, at in points:
        series.setdefault(key, []).append({"step": step, "value": value, "at": f"2026-12-01T{at}+00:00"})
    return {
        "run_id": "run_1",
        "series": [{"key": key, "title": key, "points": p} for key, p in series.items()],
    }
