"""`GET /v1/events`: a workspace's events from a cursor on, then as they happen.

Guaranteed: every event that matches comes once, in the order of the log, also over reconnections with the last id that
was received. A stream ends when its key is revoked, and when the process stops.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from libs.common.contracts.envelope import Envelope
from libs.common.errors import FieldError, Invalid, Unauthenticated, Unavailable
from libs.common.identifiers import WorkspaceId
from services.gateway.problems import Gone
from services.gateway.sse import HEARTBEAT_S, frame, position
from services.gateway.state import Gateway
from services.gateway.store import LoggedEvent

PAGE = 200
START, NOW = "start", "now"


@dataclass(frozen=True)
class Wanted:
    """Which events a stream carries."""

    workspace_id: WorkspaceId
    keys: frozenset[str] | None = None
    subject: str | None = None


async def start_of(gateway: Gateway, cursor: str | None) -> int:
    """The position that a stream starts after.

    Raises:
        Invalid: no cursor of this log.
        Gone: events behind the cursor are no longer kept.
    """
    async with gateway.service.units.read() as store:
        extent = await store.extent()
    if cursor is None or cursor == START:
        return extent.forgotten
    if cursor == NOW:
        return extent.newest
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > extent.newest:
        raise Invalid(
            f"{cursor!r} is no cursor of this log",
            fields=[FieldError("query.cursor", "an event's id, 'start' or 'now'")],
        )
    if int(cursor) < extent.forgotten:
        raise Gone(
            f"events behind cursor {cursor} are no longer kept, so some may be missing:"
            " read what you need anew and go on with cursor=start"
        )
    return int(cursor)


async def still_open(gateway: Gateway, token: str) -> bool:
    """Whether a stream may go on: its key still opens something, as far as anyone can tell."""
    if gateway.tail.closing:
        return False
    try:
        await gateway.authenticator.caller(token)
    except Unauthenticated:
        return False
    except Unavailable:
        return True
    return True


async def event_frames(gateway: Gateway, token: str, wanted: Wanted, start: int) -> AsyncGenerator[str]:
    """The frames of a stream."""
    seen = start
    yield position(seen, "connected")
    while await still_open(gateway, token):
        # Read before the page: what the tail saw committed by now is in the page, or does not match.
        committed = gateway.tail.newest
        page = await _page(gateway, wanted, seen)
        for event in page:
            yield frame(event.envelope, event=_type_of(event), id=event.seq)
        if page:
            seen = page[-1].seq
        if len(page) == PAGE:
            continue
        seen = max(seen, committed)
        if not await gateway.tail.wait_beyond(wanted.workspace_id, seen, HEARTBEAT_S):
            yield position(seen, "heartbeat")


async def _page(gateway: Gateway, wanted: Wanted, after: int) -> list[LoggedEvent]:
    async with gateway.service.units.read() as store:
        return await store.of_workspace(
            wanted.workspace_id, after=after, keys=wanted.keys, subject=wanted.subject, limit=PAGE
        )


def _type_of(event: LoggedEvent) -> str:
    return Envelope.model_validate_json(event.envelope).type
