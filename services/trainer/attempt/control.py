"""What the attempt is told, and how the telling reaches the computing thread.

The event loop hears directives by heartbeats; the computing thread asks `Control.check` between pieces of work.
Guaranteed: once the attempt is over, `check` raises for ever, so nothing is reported or saved any more.
"""

from __future__ import annotations

import asyncio
import threading

import structlog

from services.trainer.attempt.link import Fenced, Link, Unreachable
from services.trainer.domain import DirectiveWord, stronger

_log = structlog.get_logger(__name__)


class Told(Exception):
    """The attempt was told to stop in good order: `directive` is pause or cancel."""

    def __init__(self, directive: DirectiveWord) -> None:
        super().__init__(f"told to {directive}")
        self.directive: DirectiveWord = directive


class Control:
    """Written by the event loop, read by the computing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directive: DirectiveWord = "go"
        self._over = False

    def tell(self, directive: DirectiveWord) -> None:
        """A directive was heard; a weaker one than before changes nothing."""
        with self._lock:
            self._directive = stronger(self._directive, directive)

    def fence(self) -> None:
        """The attempt is over."""
        with self._lock:
            self._over = True

    @property
    def directive(self) -> DirectiveWord:
        """The strongest directive so far."""
        with self._lock:
            return self._directive

    def check(self) -> None:
        """Go on, or not.

        Raises:
            Fenced: the attempt is over.
            Told: it was told to pause or to cancel.
        """
        with self._lock:
            over, directive = self._over, self._directive
        if over:
            raise Fenced("the attempt is over")
        if directive != "go":
            raise Told(directive)


async def beat(link: Link, control: Control, every_s: float) -> None:
    """Send heartbeats and pass on what they answer, until cancelled.

    Raises:
        Fenced: the attempt is over.
        Unreachable: no heartbeat was answered for as long as the link is patient.
    """
    now = asyncio.get_running_loop().time
    answered = now()
    while True:
        try:
            control.tell((await link.heartbeat()).directive)
            answered = now()
        except Unreachable as error:
            _log.warning("a heartbeat was not answered", error=str(error))
            if now() - answered >= link.patience_s:
                raise
        await asyncio.sleep(every_s)
