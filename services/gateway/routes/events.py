"""What happens in a workspace, as a stream that can be resumed without a gap."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from services.gateway.asking import Ask
from services.gateway.event_stream import Wanted, event_frames, start_of
from services.gateway.openapi_document import documented
from services.gateway.public_events import keys_of
from services.gateway.sse import STREAM, streaming
from services.gateway.state import gateway_of, token_of

router = APIRouter(prefix="/v1/events", tags=["events"])


@router.get(
    "",
    summary="Stream events",
    response_class=StreamingResponse,
    responses={**STREAM, **documented(410)},
)
async def stream_events(
    ask: Ask,
    request: Request,
    types: Annotated[
        str | None,
        Query(
            max_length=4096,
            description="comma-separated: run.completed, run.*, osmosis.run.completed.v1; absent: all",
            examples=["run.*,checkpoint.saved"],
        ),
    ] = None,
    subject: Annotated[
        str | None, Query(max_length=128, description="only events about this run, project, dataset, …")
    ] = None,
    cursor: Annotated[
        str | None,
        Query(
            max_length=32,
            description="an event's id: from the one after it; `now`: only what comes; `start` or absent: from the"
            " oldest event that is kept (14 days)",
        ),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            max_length=32,
            description="wins over `cursor`: what a client that reconnects has seen",
        ),
    ] = None,
) -> StreamingResponse:
    """Server-sent events. `data` is a CloudEvents 1.0 envelope in JSON, `event` its type, `id` the cursor.

    Every event of the workspace comes once and in the order of its subject. After a break, come back with
    `Last-Event-ID`: nothing is missing and nothing comes twice. A cursor in front of which events are no longer kept is
    refused with 410.
    """
    gateway = gateway_of(request)
    wanted = Wanted(ask.caller.workspace(), keys_of(types), subject)
    start = await start_of(gateway, last_event_id or cursor)
    return streaming(event_frames(gateway, token_of(request), wanted, start))
