"""What every route works with, made once a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fastapi import Request

from libs.common.contracts.requests import Caller
from libs.common.platform import Platform
from libs.common.service import Service
from services.gateway.authentication import Authenticator
from services.gateway.event_tail import EventTail
from services.gateway.store import GatewayStore


@dataclass(frozen=True)
class Gateway:
    """The gateway of this process."""

    platform: Platform
    service: Service[GatewayStore]
    authenticator: Authenticator
    tail: EventTail


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    return cast("Gateway", request.app.state.gateway)


def caller_of(request: Request) -> Caller:
    """Who calls; the door has let the request in, so there is one."""
    return cast("Caller", request.state.caller)


def token_of(request: Request) -> str:
    """The key that the request came with: a stream asks again and again whether it still opens anything."""
    return cast("str", request.state.token)
