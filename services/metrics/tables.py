"""Tables of metrics: points, the runs that they belong to, and counts of rollouts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Float, Index, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.tables import AwareTime


class MetricsBase(DeclarativeBase):
    """Metadata of the service's own tables."""


class RunRow(MetricsBase):
    """A run that has points, and what of it Prometheus shows."""

    __tablename__ = "runs"
    __table_args__ = (Index("runs_active", "active"),)

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer, default=0)
    reward: Mapped[float | None] = mapped_column(Float)
    active: Mapped[bool] = mapped_column(default=True)


class PointRow(MetricsBase):
    """The value of a metric at a step. One a step: a step that is made again by a newer epoch replaces it."""

    __tablename__ = "points"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(128), primary_key=True)
    step: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(Integer)
    value: Mapped[float] = mapped_column(Float)
    at: Mapped[datetime] = mapped_column(AwareTime)


class RolloutCountRow(MetricsBase):
    """Rollouts that ended, by status."""

    __tablename__ = "rollout_counts"

    status: Mapped[str] = mapped_column(String(16), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger, default=0)
