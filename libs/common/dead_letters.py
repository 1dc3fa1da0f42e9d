"""Every service's dead letters over request/reply: list them, show them, handle one again (operator only)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, tuple_

from libs.common.contracts.dead_letters import DeadLetter, DeadLetterPage, ListDeadLetters, ReplayDeadLetter
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import Caller, Done
from libs.common.errors import Conflict, Forbidden, Invalid, NotFound
from libs.common.outbox import OUTBOX
from libs.common.tables import DeadLetterRow, OutboxRow
from libs.common.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from libs.common.service import Service


def register(service: Service[Any]) -> None:
    """Let a service answer for its dead letters."""

    async def list_them(request: ListDeadLetters, caller: Caller, uow: UnitOfWork[Any]) -> DeadLetterPage:
        _only_operator(caller)
        query = select(DeadLetterRow).order_by(DeadLetterRow.died_at.desc(), DeadLetterRow.id.desc())
        if request.cursor is not None:
            query = query.where(tuple_(DeadLetterRow.died_at, DeadLetterRow.id) < _position(request.cursor))
        rows = (await uow.session.scalars(query.limit(request.limit + 1))).all()
        shown = rows[: request.limit]
        more = len(rows) > request.limit
        return DeadLetterPage(
            items=[_view(service.name, row) for row in shown],
            next_cursor=f"{shown[-1].died_at.isoformat()} {shown[-1].id}" if more else None,
        )

    async def replay(request: ReplayDeadLetter, caller: Caller) -> Done:
        _only_operator(caller)
        async with service.database.read() as session:
            row = await session.get(DeadLetterRow, request.dead_letter_id)
        if row is None:
            raise NotFound(f"no dead letter {request.dead_letter_id} in {service.name}")
        if row.queue == OUTBOX:
            await _publish_again(service, row)
            return Done()
        try:
            await service.replay(row.queue, Envelope.model_validate_json(row.envelope))
        except Exception as error:
            raise Conflict(f"it failed again: {type(error).__name__}: {error}") from error
        async with service.units.begin() as uow:
            await uow.session.execute(delete(DeadLetterRow).where(DeadLetterRow.id == row.id))
        return Done()

    service.answer(ListDeadLetters, list_them)
    service.answer_outside(ReplayDeadLetter, replay)


async def _publish_again(service: Service[Any], row: DeadLetterRow) -> None:
    """Put a fact that was set aside back into the outbox, and take its letter away, in one transaction."""
    async with service.units.begin() as uow:
        envelope = Envelope.model_validate_json(row.envelope)
        await uow.session.execute(delete(OutboxRow).where(OutboxRow.event_id == envelope.id))
        await uow.session.execute(delete(DeadLetterRow).where(DeadLetterRow.id == row.id))
        uow.session.add(OutboxRow(event_id=envelope.id, envelope=row.envelope, created_at=envelope.time))
        uow.after_commit(service.relay.notify)


def _position(cursor: str) -> tuple[datetime, str]:
    died_at, _, id = cursor.partition(" ")
    try:
        return datetime.fromisoformat(died_at), id
    except ValueError:
        raise Invalid("the cursor is not one of this list's; take next_cursor as it came") from None


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
