"""The gateway's tables: the log of public events, and how far it was forgotten."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, Integer, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.tables import SERIAL, AwareTime


class GatewayBase(DeclarativeBase):
    """Metadata of the gateway's tables."""


class EventRow(GatewayBase):
    """A public event. `seq` is the cursor; it is never given twice, also after rows were forgotten."""

    __tablename__ = "events"
    __table_args__ = (
        Index("events_of_workspace", "workspace_id", "seq"),
        Index("events_of_key", "workspace_id", "key", "seq"),
        Index("events_of_subject", "workspace_id", "subject", "seq"),
        Index("events_by_age", "logged_at"),
        {"sqlite_autoincrement": True},
    )

    seq: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    event_id: Mapped[str] = mapped_column(String(64), unique=True)
    workspace_id: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(128))
    envelope: Mapped[str] = mapped_column(Text)
    logged_at: Mapped[datetime] = mapped_column(AwareTime)


class HorizonRow(GatewayBase):
    """One row: the highest `seq` that retention removed."""

    __tablename__ = "event_horizon"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger)
