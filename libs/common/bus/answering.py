"""The answering side of a request, the same on both buses: a deadline that has passed is not worked for."""

from __future__ import annotations

import asyncio

import structlog

from libs.common.bus import RequestHandler
from libs.common.bus.wire import encode
from libs.common.clock import Clock
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.errors import OsmosisError, Unavailable

_log = structlog.get_logger(__name__)


async def answer(handler: RequestHandler, body: bytes, clock: Clock) -> bytes | None:
    """The encoded reply to an encoded request; None when whoever asked has stopped waiting.

    What the handler raises, and a reply that is too large, become typed errors of the reply.
    """
    message = RequestMessage.model_validate_json(body)
    if clock.now() >= message.deadline:
        return None
    try:
        return encode(await handler(message))
    except OsmosisError as error:
        return encode(ReplyMessage.of(message, error))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - a defect must not end the service; it is recorded here
        _log.error("a request failed", name=message.name, exc_info=error)
        return encode(ReplyMessage.of(message, Unavailable(f"{message.name} failed where it is answered")))
