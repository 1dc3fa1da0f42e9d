"""Facts that a service could not handle: read and handled again by the operator."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from libs.common.contracts.dead_letters import DeadLetterPage, ListDeadLetters, ReplayDeadLetter
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Cursor, Limit

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

ServiceName = Annotated[
    Literal["gateway", "metrics", "registry", "rewards", "rollout", "scheduler", "trainer"],
    Query(description="the service that could not handle them"),
]


@router.get("", summary="List dead letters of a service")
async def list_dead_letters(
    service: ServiceName, ask: Ask, limit: Limit = 50, cursor: Cursor = None
) -> DeadLetterPage:
    """With the operator's key: each with the error of its last delivery, newest first."""
    ask.as_operator()
    return await ask(ListDeadLetters(limit=limit, cursor=cursor), to=service)


@router.post("/{dead_letter_id}/replay", status_code=204, summary="Handle a dead letter again")
async def replay_dead_letter(
    dead_letter_id: Annotated[str, Path(max_length=128)], service: ServiceName, ask: Command
) -> None:
    """With the operator's key. It is gone when the handler succeeds; else a conflict says how it failed again."""
    ask.as_operator()
    await ask(ReplayDeadLetter(dead_letter_id=dead_letter_id), to=service)
