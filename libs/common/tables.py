"""Tables that every service has in its own schema: outbox, inbox, replies to commands, dead letters."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Index, Integer, String, Text, text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator


class AwareTime(TypeDecorator[datetime]):
    """Aware times in UTC, also on SQLite, which keeps none of the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuses a naive time."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without a zone must not be stored")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """In UTC."""
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


SERIAL = BigInteger().with_variant(Integer(), "sqlite")


class CommonBase(DeclarativeBase):
    """Metadata of the common tables; a service's own tables have a base of their own."""


class OutboxRow(CommonBase):
    """A fact that was committed and is to be published. `hand_overs` counts the processes that tried."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index(
            "outbox_unpublished",
            "seq",
            sqlite_where=text("published_at IS NULL"),
            postgresql_where=text("published_at IS NULL"),
        ),
    )

    seq: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    event_id: Mapped[str] = mapped_column(String(64), unique=True)
    envelope: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    published_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    hand_overs: Mapped[int] = mapped_column(Integer, default=0)


class InboxRow(CommonBase):
    """A fact whose effect is committed: seeing it again changes nothing."""

    __tablename__ = "inbox"

    queue: Mapped[str] = mapped_column(String(64), primary_key=True)
    event_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    handled_at: Mapped[datetime] = mapped_column(AwareTime, index=True)


class ReplyRow(CommonBase):
    """The first reply to a command with an idempotency key, and a digest of what was asked."""

    __tablename__ = "replies"

    scope: Mapped[str] = mapped_column(String(200), primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_digest: Mapped[str] = mapped_column(String(64))
    reply: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(AwareTime, index=True)


class DeadLetterRow(CommonBase):
    """A fact whose handler failed on every delivery."""

    __tablename__ = "dead_letters"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    queue: Mapped[str] = mapped_column(String(64))
    type: Mapped[str] = mapped_column(String(128))
    subject: Mapped[str] = mapped_column(String(128))
    attempts: Mapped[int] = mapped_column(Integer)
    error: Mapped[str] = mapped_column(Text)
    envelope: Mapped[str] = mapped_column(Text)
    died_at: Mapped[datetime] = mapped_column(AwareTime, index=True)
