"""Tables of the scheduler: nodes, the queue, leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Index, Integer, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.tables import AwareTime


class SchedulerBase(DeclarativeBase):
    """Metadata of the scheduler's own tables."""


class NodeRow(SchedulerBase):
    """A machine of the pool."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    devices: Mapped[list[str]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(16))
    last_seen: Mapped[datetime] = mapped_column(AwareTime)


class QueueRow(SchedulerBase):
    """Work that waits, and why."""

    __tablename__ = "queue"

    work_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    work_kind: Mapped[str] = mapped_column(String(8))
    workspace_id: Mapped[str] = mapped_column(String(64), index=True)
    order: Mapped[dict[str, Any]] = mapped_column("work_order", JSON)
    resources: Mapped[dict[str, Any]] = mapped_column(JSON)
    resume_from: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    queued_at: Mapped[datetime] = mapped_column(AwareTime)
    position: Mapped[int] = mapped_column(Integer, default=0)
    reason: Mapped[str] = mapped_column(Text, default="")


class LeaseRow(SchedulerBase):
    """Resources held by one attempt, and its process where this machine runs it."""

    __tablename__ = "leases"
    __table_args__ = (
        Index("leases_work_epoch", "work_id", "epoch", unique=True),
        Index(
            "leases_active",
            "node_id",
            sqlite_where=text("state IN ('held', 'releasing')"),
            postgresql_where=text("state IN ('held', 'releasing')"),
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    work_id: Mapped[str] = mapped_column(String(64))
    work_kind: Mapped[str] = mapped_column(String(8))
    workspace_id: Mapped[str] = mapped_column(String(64), index=True)
    epoch: Mapped[int] = mapped_column(Integer)
    node_id: Mapped[str] = mapped_column(String(128))
    devices: Mapped[list[str]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(16))
    granted_at: Mapped[datetime] = mapped_column(AwareTime)
    heartbeat_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    releasing_since: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    pid: Mapped[int | None] = mapped_column(Integer, default=None)
    pid_started: Mapped[str | None] = mapped_column(String(32), default=None)
