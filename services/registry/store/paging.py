"""Pages of rows, newest first. Ids sort by time, so an id is the cursor: what is added meanwhile moves no page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from libs.common.errors import Conflict
from services.registry.tables import RegistryBase

RowT = TypeVar("RowT", bound=RegistryBase)


@dataclass(frozen=True)
class PageOf(Generic[RowT]):
    """Rows of a page, and the cursor of the next one where there is one."""

    rows: Sequence[RowT]
    next_cursor: str | None


async def page_by_id(
    session: AsyncSession,
    query: Select[RowT],
    id_column: InstrumentedAttribute[str],
    *,
    limit: int,
    cursor: str | None,
) -> PageOf[RowT]:
    """The next `limit` rows below the cursor."""
    if cursor is not None:
        query = query.where(id_column < cursor)
    rows = (await session.scalars(query.order_by(id_column.desc()).limit(limit + 1))).all()
    shown = rows[:limit]
    more = len(rows) > limit
    return PageOf(shown, str(getattr(shown[-1], id_column.key)) if more else None)


async def add_unique(session: AsyncSession, row: Any, taken: str) -> None:
    """Add a row now.

    Raises:
        Conflict: with the text `taken`, when something unique of it exists (also by a race).
    """
    session.add(row)
    try:
        await session.flush()
    except IntegrityError as error:
        raise Conflict(taken) from error
