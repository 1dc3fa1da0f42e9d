"""What the process gives every service: settings, bus, blobs, clock, and a way to ask another service."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from libs.common.blobs import BlobStore
from libs.common.bus import Bus
from libs.common.clock import Clock
from libs.common.contracts.requests import Caller, ReplyT, Request, RequestMessage
from libs.common.identifiers import new_id
from libs.common.settings import Settings
from libs.common.telemetry.traces import current_traceparent, span


@dataclass(frozen=True)
class Platform:
    """Shared by the services of one process."""

    settings: Settings
    bus: Bus
    blobs: BlobStore
    clock: Clock

    async def ask(
        self,
        request: Request[ReplyT],
        caller: Caller,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        to: str | None = None,
    ) -> ReplyT:
        """Ask the service that answers `request` (or the address `to`) and wait for its reply.

        Raises:
            OsmosisError: what the service answered; Unavailable when no answer came in `timeout_s` seconds.
        """
        kind = type(request)
        name = f"{kind.SERVICE}.{kind.NAME}"
        now = self.clock.now()
        with span(f"ask {name}"):
            message = RequestMessage(
                id=new_id("req", now, secrets.randbits),
                name=name,
                caller=caller,
                deadline=now + timedelta(seconds=timeout_s or self.settings.request_timeout_s),
                idempotency_key=idempotency_key,
                traceparent=current_traceparent(),
                data=request.model_dump(mode="json"),
            )
            reply = await self.bus.call(to or kind.SERVICE, message)
        return cast("ReplyT", reply.open(kind.REPLY))


def as_service(name: str) -> Caller:
    """One of our services asking for itself."""
    return Caller(kind="service", name=name)
