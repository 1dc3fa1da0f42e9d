"""The attempt's side of the trainer service's HTTP door.

Guaranteed: a call is tried again while the service cannot be reached, up to the link's patience; a refusal because
the attempt is over comes out as `Fenced` and is never tried again. Every call may be repeated: the service takes each
once.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx
import structlog
from pydantic import BaseModel
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from libs.common.contracts.attempts import (
    BatchOrder,
    CheckpointReport,
    CompletedGroups,
    Directive,
    Ended,
    Hello,
    Started,
    StepReport,
)
from libs.common.contracts.requests import Done
from libs.common.errors import Conflict, NotFound, OsmosisError, Unavailable, from_wire
from libs.common.identifiers import BatchId
from libs.common.telemetry.traces import current_traceparent

CALL_TIMEOUT_S = 20.0
HELLO_PATIENCE_S = 60.0
LONGEST_PAUSE_S = 2.0

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_log = structlog.get_logger(__name__)


class Fenced(Exception):
    """The attempt is over: a newer epoch exists or the lease is gone. Stop, and change nothing any more."""


class Unreachable(Exception):
    """The trainer service did not answer for as long as a lease lives without heartbeats."""


class Link:
    """Calls of one attempt. `patience_s`: how long a call is tried again, seconds; the lease's life once it is known."""

    def __init__(
        self,
        address: str,
        work_id: str,
        epoch: int,
        token: str,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"{address.rstrip('/')}/attempts/{work_id}/{epoch}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=CALL_TIMEOUT_S,
            transport=transport,
        )
        self.patience_s = HELLO_PATIENCE_S

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def hello(self) -> Hello:
        """The order. Waits for the service to hear of the lease; from then on the lease's life is the patience."""
        answer = await self._retried("POST", "hello", Hello, also_retry=(NotFound,))
        self.patience_s = answer.lease_ttl_s
        return answer

    async def started(self, report: Started) -> None:
        """The attempt is up."""
        await self._retried("POST", "started", Done, body=report)

    async def heartbeat(self) -> Directive:
        """Still alive. One try: the next heartbeat comes soon.

        Raises:
            Unreachable: no answer to this one.
        """
        try:
            return await self._call("POST", "heartbeat", Directive)
        except (httpx.TransportError, Unavailable) as error:
            raise Unreachable(str(error)) from error

    async def request_batch(self, order: BatchOrder) -> None:
        """Ask for rollouts."""
        await self._retried("POST", "batches", Done, body=order)

    async def groups(self, batch_id: BatchId, after: int, wait_s: float) -> CompletedGroups:
        """Groups completed behind a position; waits for the first of them, `wait_s` seconds at most."""
        path = f"batches/{batch_id}/groups"
        return await self._retried("GET", path, CompletedGroups, query={"after": after, "wait_s": wait_s})

    async def report_step(self, report: StepReport) -> None:
        """Metrics of a step."""
        await self._retried("POST", "steps", Done, body=report)

    async def report_checkpoint(self, report: CheckpointReport) -> None:
        """A saved checkpoint."""
        await self._retried("POST", "checkpoints", Done, body=report)

    async def ended(self, report: Ended) -> None:
        """How it ended."""
        await self._retried("POST", "ended", Done, body=report)

    async def _retried(
        self,
        method: str,
        path: str,
        reply: type[ReplyT],
        *,
        body: BaseModel | None = None,
        query: dict[str, Any] | None = None,
        also_retry: tuple[type[OsmosisError], ...] = (),
    ) -> ReplyT:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((httpx.TransportError, Unavailable, *also_retry)),
            stop=stop_after_delay(self.patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_S),
            before_sleep=_note,
            reraise=True,
        )
        try:
            return await retrying(self._call, method, path, reply, body=body, query=query)
        except (httpx.TransportError, Unavailable, *also_retry) as error:
            raise Unreachable(f"{path}: no good answer for {self.patience_s:.0f} s: {error!r}") from error

    async def _call(
        self,
        method: str,
        path: str,
        reply: type[ReplyT],
        *,
        body: BaseModel | None = None,
        query: dict[str, Any] | None = None,
    ) -> ReplyT:
        wait_s = float((query or {}).get("wait_s", 0.0))
        answer = await self._client.request(
            method,
            path,
            params=query,
            content=body.model_dump_json() if body is not None else None,
            headers=_headers(body),
            timeout=CALL_TIMEOUT_S + wait_s,
        )
        if answer.is_success:
            return reply.model_validate_json(answer.content)
        error = _error_of(answer)
        if isinstance(error, Conflict):
            raise Fenced(error.message)
        raise error


def _headers(body: BaseModel | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    traceparent = current_traceparent()
    return headers | ({"traceparent": traceparent} if traceparent else {})


def _error_of(answer: httpx.Response) -> OsmosisError:
    if answer.headers.get("content-type", "").startswith("application/json"):
        wire = answer.json()
        if isinstance(wire, dict) and "code" in wire:
            return from_wire(cast("dict[str, Any]", wire))
    return Unavailable(f"the trainer service answered {answer.status_code}")


def _note(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    _log.info("calling the trainer service again", tries=state.attempt_number, error=repr(error))
