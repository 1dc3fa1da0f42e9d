"""A service: its handlers, its background work, and how they are run.

`service.py` of every service builds one of these: it says which facts it hears, which requests it answers and what it
does in between. The runtime gives the guarantees: one unit of work a handler, the inbox, retries, dead letters, one
owner for every task.
"""

from __future__ import annotations

import asyncio
import secrets
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, cast

import structlog
from opentelemetry.trace import SpanKind
from pydantic import ValidationError

from libs.common import dead_letters
from libs.common.bus import QueueSpec, RetryPolicy
from libs.common.consuming import Handle, Work, WorkOn, answer_once, bury, handle_once, work_once
from libs.common.contracts.dead_letters import ListDeadLetters, ReplayDeadLetter
from libs.common.contracts.envelope import Envelope, Fact, FactT
from libs.common.contracts.requests import (
    Caller,
    Reply,
    ReplyMessage,
    ReplyT,
    Request,
    RequestMessage,
    request_types,
)
from libs.common.database import Database, is_transient
from libs.common.errors import FieldError, Invalid, OsmosisError, Unavailable
from libs.common.migrations import migrate
from libs.common.outbox import Relay
from libs.common.platform import Platform
from libs.common.telemetry.traces import span
from libs.common.unit_of_work import StoreFactory, StoreT, UnitOfWork, UnitsOfWork

_log = structlog.get_logger(__name__)

Background = Callable[[], Coroutine[Any, Any, None]]
"""A loop that runs as long as its service. It is begun again after an error that passes (a database or a bus that is
away for a while); any other ends the process."""
BEGIN_AGAIN_S = 1.0


class Service(Generic[StoreT]):
    """One of the seven."""

    def __init__(
        self,
        name: str,
        platform: Platform,
        *,
        store: StoreFactory[StoreT],
        migrations: Path,
        retry: RetryPolicy | None = None,
    ) -> None:
        """`retry`: how often and when a fact that was not handled is delivered again."""
        self.name = name
        self.platform = platform
        self.address = f"{name}.{secrets.token_hex(6)}"
        """Requests sent to this address reach this replica alone."""
        self.database = Database(platform.settings.database, name)
        self._migrations = migrations
        self._retry = retry or RetryPolicy()
        self.relay = Relay(
            self.database, platform.bus, platform.clock, one_by_one=not platform.settings.embedded
        )
        self.units = UnitsOfWork(
            self.database, store, source=name, clock=platform.clock, committed=self.relay.notify
        )
        self._handlers: dict[str, Handle[Fact, StoreT]] = {}
        self._workers: dict[str, tuple[WorkOn[Fact, StoreT], int]] = {}
        self._answers: dict[str, Callable[[RequestMessage, Request[Any]], Awaitable[Reply]]] = {}
        self._backgrounds: list[tuple[str, Background]] = []
        self._prepared = False
        self.started = asyncio.Event()
        dead_letters.register(self)

    def on(self, fact: type[FactT], handle: Handle[FactT, StoreT]) -> None:
        """Handle a fact in one unit of work, in the order of its subject."""
        self._once(fact.KEY)
        self._handlers[fact.KEY] = cast("Handle[Fact, StoreT]", handle)

    def work(self, fact: type[FactT], work_on: WorkOn[FactT, StoreT], *, concurrency: int = 8) -> None:
        """Work on a fact for as long as it takes (at most 25 minutes), shared among replicas, in no order."""
        self._once(fact.KEY)
        self._workers[fact.KEY] = (cast("WorkOn[Fact, StoreT]", work_on), concurrency)

    def answer(
        self,
        request: type[Request[ReplyT]],
        answer: Callable[[Any, Caller, UnitOfWork[StoreT]], Awaitable[ReplyT]],
    ) -> None:
        """Answer a request in one unit of work."""
        self._answers[f"{request.SERVICE}.{request.NAME}"] = lambda message, typed: answer_once(
            self.units, message, typed, answer
        )

    def answer_outside(
        self, request: type[Request[ReplyT]], answer: Callable[[Any, Caller], Awaitable[ReplyT]]
    ) -> None:
        """Answer a request with work of its own: it opens units of work itself where it needs them."""

        async def outside(message: RequestMessage, typed: Request[Any]) -> Reply:
            return await answer(typed, message.caller)

        self._answers[f"{request.SERVICE}.{request.NAME}"] = outside

    def background(self, name: str, run: Background) -> None:
        """Run a loop for as long as the service runs."""
        self._backgrounds.append((name, run))

    async def run(self) -> None:
        """Migrate, declare, consume, serve and relay until cancelled."""
        await self.prepare()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.relay.run(), name=f"{self.name}:relay")
            for name, loop in self._backgrounds:
                tasks.create_task(self._forever(name, loop), name=f"{self.name}:{name}")
            await self._listen()
            self.started.set()
            _log.info("service started", service=self.name)

    async def prepare(self) -> None:
        """Bring the schema up to date and make every queue exist, so that no fact stated from now on is missed.

        Once is enough: services of one process prepare one after the other, since alembic has one state a process.
        """
        if self._prepared:
            return
        await migrate(self.database, self._migrations)
        for queue in self._queues():
            await self.platform.bus.declare(queue)
        self._prepared = True

    async def aclose(self) -> None:
        """Close what `run` opened; after it is cancelled."""
        await self.database.aclose()

    def _once(self, key: str) -> None:
        if key in self._handlers or key in self._workers:
            raise ValueError(f"{self.name} has a handler for {key} already")

    def _facts_queue(self) -> str:
        return f"{self.name}.facts"

    def _queues(self) -> list[QueueSpec]:
        queues = [
            QueueSpec(
                f"{self.name}.work.{key}", (key,), ordered=False, prefetch=concurrency, retry=self._retry
            )
            for key, (_, concurrency) in self._workers.items()
        ]
        if self._handlers:
            bindings = tuple(sorted(self._handlers))
            queues.append(QueueSpec(self._facts_queue(), bindings, retry=self._retry))
        return queues

    async def _listen(self) -> None:
        for queue in self._queues():
            handler = self._consumer(queue.name)

            async def dead(envelope: Envelope, deliveries: int, error: str, name: str = queue.name) -> None:
                await bury(self.units, name, envelope, deliveries, error)

            await self.platform.bus.consume(queue, handler, dead)
        for address in (self.name, self.address):
            await self.platform.bus.serve(address, self._reply)

    def _consumer(self, queue: str) -> Callable[[Envelope, int], Awaitable[None]]:
        async def consume(envelope: Envelope, delivery: int) -> None:
            with span(
                f"{self.name} {envelope.routing_key}",
                traceparent=envelope.traceparent,
                kind=SpanKind.CONSUMER,
                subject=envelope.subject,
            ):
                await self._handle(queue, envelope, delivery)

        return consume

    async def _handle(self, queue: str, envelope: Envelope, delivery: int) -> None:
        key = envelope.routing_key
        if key in self._workers:
            await work_once(self.units, self.database, queue, envelope, delivery, self._workers[key][0])
        elif key in self._handlers:
            await handle_once(self.units, queue, envelope, self._handlers[key])

    async def replay(self, queue: str, envelope: Envelope) -> None:
        """Handle a dead letter once more.

        Raises:
            Exception: what the handler raised.
        """
        await self._handle(queue, envelope, 1)

    async def _reply(self, message: RequestMessage) -> ReplyMessage:
        with span(f"{self.name} {message.name}", traceparent=message.traceparent, kind=SpanKind.SERVER):
            try:
                return ReplyMessage.of(message, await self._answer(message))
            except OsmosisError as error:
                return ReplyMessage.of(message, error)
            except Exception as error:  # noqa: BLE001 - a defect must not end the service; it is recorded here
                _log.error(
                    "a request failed", name=message.name, error=repr(error), trace=traceback.format_exc()
                )
                why = (
                    "its database is away; try again"
                    if is_transient(error)
                    else "the operator's log says why"
                )
                return ReplyMessage.of(
                    message, Unavailable(f"{message.name} failed inside the {self.name} service: {why}")
                )

    async def _answer(self, message: RequestMessage) -> Reply:
        answer, kind = self._answers.get(message.name), request_types().get(message.name)
        if answer is None or kind is None:
            raise Unavailable(
                f"the {self.name} service does not answer {message.name}; is it an older version?"
            )
        try:
            request = kind.model_validate(message.data)
        except ValidationError as error:
            raise Invalid(f"{message.name} is not valid", fields=field_errors(error)) from None
        return await answer(message, request)

    async def _forever(self, name: str, loop: Background) -> None:
        while True:
            try:
                await loop()
            except Exception as error:
                _log.error(
                    "background work ended", work=name, error=repr(error), trace=traceback.format_exc()
                )
                if not is_transient(error):
                    raise
            else:
                return
            await asyncio.sleep(BEGIN_AGAIN_S)


def field_errors(error: ValidationError, prefix: str = "") -> list[FieldError]:
    """A validation error as paths and messages, without the offending values (they may hold secrets)."""
    return [
        FieldError(prefix + ".".join(str(part) for part in fault["loc"]), fault["msg"])
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]


__all__ = [
    "ListDeadLetters",
    "ReplayDeadLetter",
    "Service",
    "UnitOfWork",
    "Work",
    "field_errors",
]
