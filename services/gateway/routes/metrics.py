"""Training curves: in ranges, down-sampled, and live."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from libs.common.contracts.metrics import QueryMetrics, RunMetrics
from libs.common.contracts.runs import GetRun
from services.gateway.asking import Ask
from services.gateway.metric_stream import metric_frames, position_from
from services.gateway.parameters import RunIn
from services.gateway.sse import STREAM, streaming
from services.gateway.state import gateway_of, token_of

router = APIRouter(prefix="/v1/runs/{run_id}/metrics", tags=["metrics"])

Keys = Annotated[
    str | None,
    Query(
        max_length=4096,
        description="comma-separated metric keys; absent: all",
        examples=["rollout/raw_reward,eval/validation/reward"],
    ),
]


def _keys(text: str | None) -> list[str] | None:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    return names or None


@router.get("", summary="Curves of a run")
async def query_metrics(
    run_id: RunIn,
    ask: Ask,
    keys: Keys = None,
    from_step: Annotated[int | None, Query(ge=0)] = None,
    to_step: Annotated[int | None, Query(ge=0)] = None,
    since: datetime | None = None,
    until: datetime | None = None,
    max_points: Annotated[int, Query(ge=2, le=10_000, description="points of one curve at most")] = 1000,
) -> RunMetrics:
    """Points by step. Where a curve has more than `max_points`, each stands for a bucket with its extremes."""
    return await ask(
        QueryMetrics(
            run_id=run_id,
            keys=_keys(keys),
            from_step=from_step,
            to_step=to_step,
            since=since,
            until=until,
            max_points=max_points,
        )
    )


@router.get("/stream", summary="Curves of a run, live", response_class=StreamingResponse, responses=STREAM)
async def stream_metrics(
    run_id: RunIn,
    ask: Ask,
    request: Request,
    keys: Keys = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)] = None,
) -> StreamingResponse:
    """Server-sent events: `points` (what is known, then every step as it comes), and `end` with the run's last status.

    A client that comes back with `Last-Event-ID` gets what it has not seen.
    """
    since = position_from(last_event_id)
    await ask(GetRun(run_id=run_id))
    return streaming(metric_frames(gateway_of(request), ask, token_of(request), run_id, _keys(keys), since))
