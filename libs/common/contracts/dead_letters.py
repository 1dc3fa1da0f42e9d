"""Facts that a service could not handle: every service answers these requests about its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from libs.common.contracts.envelope import Contract
from libs.common.contracts.requests import Done, Page, PageRequest, Request


class DeadLetter(Contract):
    """A fact whose handler failed on every delivery. `error` is the text of the last failure."""

    id: str
    service: str
    queue: str
    type: str
    subject: str
    attempts: int
    error: str
    died_at: datetime
    envelope: dict[str, Any]


class DeadLetterPage(Page):
    """Dead letters, newest first."""

    items: list[DeadLetter]


class ListDeadLetters(PageRequest, Request[DeadLetterPage], service="common", name="list_dead_letters"):
    """Dead letters of the service that is asked (operator only)."""


class ReplayDeadLetter(Request[Done], service="common", name="replay_dead_letter", command=True):
    """Handle a dead letter once more; it is gone when the handler succeeds, else the error is answered."""

    dead_letter_id: str
