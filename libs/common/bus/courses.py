"""A fact's course from a queue to its end: deliveries by the retry policy, then the dead-letter sink.

Guaranteed, whichever bus carries the queue: a handler sees a fact at most as often as the policy says within one life
of the process, and a fact that cannot be handled is settled only once the sink has kept it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from libs.common.bus import DeadLetterSink, FactHandler, RetryPolicy
from libs.common.contracts.envelope import Envelope

_log = structlog.get_logger(__name__)
SINK_RETRY_S = 1.0


@dataclass
class Course:
    """One fact in one queue. `delivery` is the number of the next one, from 1."""

    envelope: Envelope
    retry: RetryPolicy
    handler: FactHandler
    sink: DeadLetterSink
    delivery: int = 1
    last_error: str | None = field(default=None)
    """Set once no delivery is left: the fact belongs to the sink."""

    async def go_on(self) -> float | None:
        """One delivery, or one try of the sink; the seconds until the next, None when the fact is settled."""
        if self.last_error is None:
            error = await _deliver(self.handler, self.envelope, self.delivery)
            if error is None:
                return None
            if self.delivery < self.retry.deliveries:
                self.delivery += 1
                return self.retry.delays_s[self.delivery - 2]
            self.last_error = error
        return await self._bury(self.last_error)

    async def _bury(self, error: str) -> float | None:
        try:
            await self.sink(self.envelope, self.delivery, error)
        except Exception as failure:  # noqa: BLE001 - a fact is not dropped because its grave is shut
            _log.error("a dead letter could not be kept; trying again", error=repr(failure))
            return SINK_RETRY_S
        return None


async def _deliver(handler: FactHandler, envelope: Envelope, delivery: int) -> str | None:
    """One delivery; the error's text when it failed."""
    try:
        await handler(envelope, delivery)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Something inside the handler was cancelled, not the handler: a failure like any other.
        return _failed(envelope, delivery, error)
    except Exception as error:  # noqa: BLE001 - a failing handler asks for another delivery; recorded here
        return _failed(envelope, delivery, error)
    return None


def _failed(envelope: Envelope, delivery: int, error: BaseException) -> str:
    _log.warning(
        "a fact was not handled",
        type=envelope.type,
        subject=envelope.subject,
        delivery=delivery,
        exc_info=error,
    )
    return f"{type(error).__name__}: {error}"
