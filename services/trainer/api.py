"""The attempts' door: HTTP routes of docs/architecture.md, one contract model each way.

Guaranteed: a call is answered only to the holder of the token of this work and epoch; an attempt that is over gets 409
on every route; errors travel as `{code, message, fields}` and read back with `libs.common.errors.from_wire`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from opentelemetry.trace import SpanKind

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
from libs.common.contracts.blobs import Parcel
from libs.common.contracts.requests import Done
from libs.common.contracts.trajectories import Group
from libs.common.errors import FieldError, Invalid, OsmosisError, Unauthenticated
from libs.common.identifiers import BatchId, WorkId
from libs.common.platform import Platform
from libs.common.telemetry.traces import span
from libs.common.tokens import bearer, derive_token, token_matches
from libs.common.unit_of_work import UnitsOfWork
from services.trainer import handlers
from services.trainer.arrivals import Arrivals
from services.trainer.domain import fenced
from services.trainer.heartbeats import Heartbeats
from services.trainer.orders import open_order
from services.trainer.store import TrainerStore

MAX_WAIT_S = 30.0
ASK_DATABASE_EVERY_S = 0.5
"""How long a group that another replica kept may go unseen by a long poll here."""
GROUPS_PER_ANSWER = 32
"""Parcels are 64 KiB at most, so an answer stays near 2 MiB."""

ReportT = TypeVar("ReportT")
Handle = Callable[[WorkId, int, ReportT, handlers.Uow], Awaitable[None]]


@dataclass(frozen=True)
class AttemptKey:
    """Who calls, once its token was found right."""

    work_id: WorkId
    epoch: int
    traceparent: str | None


class AttemptApi:
    """Routes over the handlers."""

    def __init__(self, platform: Platform, units: UnitsOfWork[TrainerStore], arrivals: Arrivals) -> None:
        self._platform = platform
        self._units = units
        self._arrivals = arrivals
        self._heartbeats = Heartbeats(platform)

    def app(self) -> FastAPI:
        """The ASGI app."""
        app = FastAPI(title="Osmosis trainer, for attempts", docs_url=None, redoc_url=None, openapi_url=None)
        app.state.secret = self._platform.settings.deployment_secret
        app.add_exception_handler(OsmosisError, _say_error)
        app.add_exception_handler(RequestValidationError, _say_fields)
        router = APIRouter(prefix="/attempts/{work_id}/{epoch}")
        for name, method in (
            ("hello", self.hello),
            ("started", self.started),
            ("heartbeat", self.heartbeat),
            ("batches", self.batches),
            ("steps", self.steps),
            ("checkpoints", self.checkpoints),
            ("ended", self.ended),
        ):
            router.add_api_route(f"/{name}", method, methods=["POST"])
        router.add_api_route("/batches/{batch_id}/groups", self.groups, methods=["GET"])
        app.include_router(router)
        return app

    async def hello(self, key: Authorised) -> Hello:
        """What to do, and from where."""
        return await open_order(self._platform, self._units, key.work_id, key.epoch)

    async def started(self, key: Authorised, report: Started) -> Done:
        """The process is up."""
        return await self._handle(key, report, handlers.start)

    async def heartbeat(self, key: Authorised) -> Directive:
        """Still alive; answers what to do."""
        async with self._units.begin() as uow:
            directive = await handlers.direct(key.work_id, key.epoch, uow)
        if await self._heartbeats.lease_is_held(key.work_id, key.epoch):
            return directive
        async with self._units.begin() as uow:
            await handlers.fence(key.work_id, key.epoch, uow)
        raise fenced(key.work_id, key.epoch)

    async def batches(self, key: Authorised, order: BatchOrder) -> Done:
        """Ask for rollouts."""
        return await self._handle(key, order, handlers.request_batch)

    async def groups(
        self,
        key: Authorised,
        batch_id: str,
        after: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
    ) -> CompletedGroups:
        """Completed groups behind `after`, as soon as there are any; an empty answer after `wait_s` seconds."""
        batch, now = BatchId(batch_id), asyncio.get_running_loop().time
        deadline = now() + wait_s
        while True:
            arrived = self._arrivals.expect(batch)
            answer = await self._completed(key, batch, after)
            left = deadline - now()
            if answer.groups or answer.done or left <= 0:
                return answer
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, ASK_DATABASE_EVERY_S)):
                    await arrived.wait()

    async def steps(self, key: Authorised, report: StepReport) -> Done:
        """Metrics of a step."""
        return await self._handle(key, report, handlers.report_step)

    async def checkpoints(self, key: Authorised, report: CheckpointReport) -> Done:
        """A saved checkpoint."""
        return await self._handle(key, report, handlers.report_checkpoint)

    async def ended(self, key: Authorised, report: Ended) -> Done:
        """How it ended."""
        return await self._handle(key, report, handlers.end)

    async def _handle(self, key: AttemptKey, report: ReportT, handle: Handle[ReportT]) -> Done:
        name = f"trainer {type(report).__name__}"
        with span(name, traceparent=key.traceparent, kind=SpanKind.SERVER, subject=key.work_id):
            async with self._units.begin() as uow:
                await handle(key.work_id, key.epoch, report, uow)
        return Done()

    async def _completed(self, key: AttemptKey, batch_id: BatchId, after: int) -> CompletedGroups:
        async with self._units.read() as store:
            batch = await handlers.batch_of(key.work_id, key.epoch, batch_id, store)
            rows = await store.groups_after(batch_id, after, GROUPS_PER_ANSWER)
        position = rows[-1].position if rows else after
        return CompletedGroups(
            position=position,
            groups=[Parcel[Group].model_validate_json(row.parcel_json) for row in rows],
            done=position >= batch.asked,
        )


def _authorised(
    request: Request, work_id: str, epoch: int, authorization: Annotated[str | None, Header()] = None
) -> AttemptKey:
    secret: bytes = request.app.state.secret
    if not token_matches(bearer(authorization), derive_token(secret, "attempt", work_id, epoch)):
        raise Unauthenticated(f"the token does not open epoch {epoch} of {work_id}")
    return AttemptKey(WorkId(work_id), epoch, request.headers.get("traceparent"))


Authorised = Annotated[AttemptKey, Depends(_authorised)]


async def _say_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OsmosisError)
    return JSONResponse(error.to_wire(), status_code=error.status)


async def _say_fields(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = [
        FieldError(".".join(str(part) for part in fault["loc"]), fault["msg"]) for fault in error.errors()
    ]
    return await _say_error(
        request, Invalid(f"{request.url.path} got a body or query it cannot read", fields=fields)
    )
