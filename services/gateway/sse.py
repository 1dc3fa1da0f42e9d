"""Server-sent events as text (WHATWG HTML, section 9.2): frames, comments, and a position without an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

HEARTBEAT_S = 15.0
"""Proxies commonly cut a connection after 30 or 60 silent seconds."""

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream that stays open",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""How the documentation describes a stream."""


def frame(data: str, *, event: str | None = None, id: str | int | None = None) -> str:
    """One event; `data` is one line of JSON."""
    lines = [f"data: {data}"]
    if event is not None:
        lines.insert(0, f"event: {event}")
    if id is not None:
        lines.insert(0, f"id: {id}")
    return "\n".join(lines) + "\n\n"


def position(id: str | int, note: str) -> str:
    """Moves the client's Last-Event-ID without an event, and keeps the connection warm."""
    return f": {note}\nid: {id}\n\n"


def streaming(frames: AsyncIterator[str]) -> StreamingResponse:
    """The response that carries the frames; no proxy may hold them back."""
    return StreamingResponse(
        frames,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
