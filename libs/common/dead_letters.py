"""Every service's dead letters over request/reply: list them, show them, handle one again (operator only)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

from libs.common.contracts.dead_letters import DeadLetter, DeadLetterPage, ListDeadLetters, ReplayDeadLetter
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import Caller, Done
from libs.common.errors import Conflict, Forbidden, NotFound
from libs.common.tables import DeadLetterRow
from libs.common.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from libs.common.service import Service


def register(service: Service[Any]) -> None:
    """Let a service answer for its dead letters."""

    async def list_them(request: ListDeadLetters, caller: Caller, uow: UnitOfWork[Any]) -> DeadLetterPage:
        _only_operator(caller)
        query = select(DeadLetterRow).order_by(DeadLetterRow.died_at.desc(), DeadLetterRow.id.desc())
        rows = (await uow.session.scalars(query.limit(request.limit))).all()
        return DeadLetterPage(items=[_view(service.name, row) for row in rows])

    async def replay(request: ReplayDeadLetter, caller: Caller) -> Done:
        _only_operator(caller)
        async with service.database.read() as session:
            row = await session.get(DeadLetterRow, request.dead_letter_id)
        if row is None:
            raise NotFound(f"no dead letter {request.dead_letter_id} in {service.name}")
        try:
            await service.replay(row.queue, Envelope.model_validate_json(row.envelope))
        except Exception as error:
            raise Conflict(f"it failed again: {type(error).__name__}: {error}") from error
        async with service.units.begin() as uow:
            await uow.session.execute(delete(DeadLetterRow).where(DeadLetterRow.id == row.id))
        return Done()

    service.answer(ListDeadLetters, list_them)
    service.answer_outside(ReplayDeadLetter, replay)


def _only_operator(caller: Caller) -> None:
    if caller.kind != "root":
        raise Forbidden("dead letters are the operator's: use the root key")


def _view(service: str, row: DeadLetterRow) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        service=service,
        queue=row.queue,
        type=row.type,
        subject=row.subject,
        attempts=row.attempts,
        error=row.error,
        died_at=row.died_at,
        envelope=json.loads(row.envelope),
    )
