"""The door: what happens to every request before a route sees it.

Guaranteed: nothing but `OPEN_PATHS` is reached without a valid key, also when a route is added and nobody thinks of it;
a body that is not an upload is strict JSON of at most 2 MiB that arrived within 30 s; every answer names its request id;
whatever breaks, the answer is a problem.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import traceback

import structlog
from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.common.errors import FieldError, Invalid, OsmosisError, TooLarge
from libs.common.identifiers import new_id
from libs.common.telemetry.traces import span
from libs.common.tokens import bearer
from services.gateway.problems import Defect, TooSlow, UnsupportedMedia, problem_of
from services.gateway.state import Gateway
from services.gateway.strict_json import check_json

OPEN_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json", "/docs"})
BODY_LIMIT_BYTES = 2 * 1024 * 1024
BODY_DEADLINE_S = 30.0
_UPLOAD = re.compile(r"/v1/datasets/[^/]+/content")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

_log = structlog.get_logger(__name__)


class Door:
    """ASGI middleware around every route."""

    def __init__(self, app: ASGIApp, gateway: Gateway, *, body_deadline_s: float = BODY_DEADLINE_S) -> None:
        self._app = app
        self._gateway = gateway
        self._body_deadline_s = body_deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = self._request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        began = time.perf_counter()
        with (
            structlog.contextvars.bound_contextvars(request_id=request_id),
            span(
                f"HTTP {scope['method']}",
                traceparent=headers.get("traceparent"),
                kind=SpanKind.SERVER,
                path=scope["path"],
            ),
        ):
            try:
                await self._let_in(scope, headers, receive, answer)
            finally:
                # Probes come every few seconds and say nothing of use.
                write = _log.debug if scope["path"] in ("/health", "/ready") else _log.info
                write(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=answer.status,
                    ms=round((time.perf_counter() - began) * 1000, 1),
                )

    async def _let_in(self, scope: Scope, headers: Headers, receive: Receive, answer: _Answer) -> None:
        try:
            _check_address(scope)
            if scope["path"] not in OPEN_PATHS:
                token = bearer(headers.get("authorization"))
                scope["state"]["caller"] = await self._gateway.authenticator.caller(token)
                scope["state"]["token"] = token
            if not (scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])):
                receive = await _with_checked_body(headers, receive, self._body_deadline_s)
            await self._app(scope, receive, answer.send)
        except OsmosisError as error:
            await answer.instead(scope, receive, error)
        except Exception as error:  # noqa: BLE001 - the last place that can answer; the defect is recorded here
            _log.error("a call failed", error=repr(error), trace=traceback.format_exc())
            await answer.instead(
                scope, receive, Defect("this call failed by a defect; the log has it under this request id")
            )

    def _request_id(self, headers: Headers) -> str:
        given = headers.get("x-request-id", "")
        if _REQUEST_ID.fullmatch(given):
            return given
        return new_id("req", self._gateway.platform.clock.now(), secrets.randbits)


class _Answer:
    """Puts the request id on the answer, and knows whether one has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on."""
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            MutableHeaders(scope=message)["X-Request-Id"] = self._request_id
        await self._send(message)

    async def instead(self, scope: Scope, receive: Receive, error: OsmosisError) -> None:
        """Answer with a problem, unless an answer is already under way: then the connection breaks off."""
        if self.status is not None:
            raise error
        await problem_of(scope, error)(scope, receive, self.send)


def _check_address(scope: Scope) -> None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"] or b"\0" in scope["query_string"]:
        raise Invalid(
            "the address holds the character NUL", fields=[FieldError("path", "leave NUL out of the address")]
        )


async def _with_checked_body(headers: Headers, receive: Receive, deadline_s: float) -> Receive:
    """Read the body, check it, and give it to the route as one message."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return receive
    body, disconnected = await _read(headers, receive, deadline_s)
    if body:
        _check_media_type(headers.get("content-type", ""))
        check_json(body)
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    if disconnected is not None:
        waiting.append(disconnected)

    async def replay() -> Message:
        return waiting.pop(0) if waiting else await receive()

    return replay


async def _read(headers: Headers, receive: Receive, deadline_s: float) -> tuple[bytes, Message | None]:
    too_large = TooLarge(f"a request's body may have {BODY_LIMIT_BYTES // 1024 // 1024} MiB")
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_LIMIT_BYTES:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return b"", message
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > BODY_LIMIT_BYTES:
                    raise too_large
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts), None
    except TimeoutError:
        raise TooSlow(f"the request's body did not arrive within {deadline_s:.0f} s") from None


def _check_media_type(given: str) -> None:
    media_type = given.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMedia(
            f"this route takes application/json, not {media_type or 'a body without Content-Type'}"
        )
