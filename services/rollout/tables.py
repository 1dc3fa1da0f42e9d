"""Tables of the broker. Texts named `…_json` hold one contract model each, as JSON."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.contracts.rollouts import Phase
from libs.common.tables import SERIAL, AwareTime
from services.rollout.states import GroupState, RolloutStatus

OPEN_GROUPS = text("state IN ('waiting', 'running')")
CALLED_A_TOOL = text("tool_calls > 0")


class RolloutBase(DeclarativeBase):
    """Metadata of the broker's own tables."""


class FenceRow(RolloutBase):
    """The epochs of a run: the newest that was heard of, and the one through which all are over."""

    __tablename__ = "fences"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    newest: Mapped[int] = mapped_column(Integer, default=0)
    over_through: Mapped[int] = mapped_column(Integer, default=0)


class BatchRow(RolloutBase):
    """A batch that an attempt asked for. `request_json`: the BatchRequested."""

    __tablename__ = "batches"

    batch_id: Mapped[str] = mapped_column(String(160), primary_key=True)
    run_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    request_json: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(AwareTime)


class GroupRow(RolloutBase):
    """A group. `owner`: the replica that runs it, as long as it says so before `claimed_until`.

    `parcel_json`: the Group in a parcel, once all its rollouts ended; with its rewards, once it is completed.
    """

    __tablename__ = "groups"
    __table_args__ = (
        Index("groups_open", "seq", sqlite_where=OPEN_GROUPS, postgresql_where=OPEN_GROUPS),
        Index("groups_of_run", "run_id", "state"),
    )

    seq: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    group_id: Mapped[str] = mapped_column(String(200), unique=True)
    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.batch_id"))
    run_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    row_index: Mapped[int] = mapped_column(Integer)
    n_samples: Mapped[int] = mapped_column(Integer)
    state: Mapped[GroupState] = mapped_column(String(16))
    owner: Mapped[str | None] = mapped_column(String(64), default=None)
    claimed_until: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    parcel_json: Mapped[str | None] = mapped_column(Text, default=None)


class RolloutRow(RolloutBase):
    """A rollout. `replacement`: how many failed in its place before. Its trajectory is in its group's parcel.

    `trajectory_json`: a parcel of its own, for a rollout that failed and was replaced.
    """

    __tablename__ = "rollouts"
    __table_args__ = (
        Index("rollouts_of_run", "run_id", "id"),
        Index("rollouts_of_step", "run_id", "step", "id"),
        Index("rollouts_by_status", "run_id", "status", "id"),
        Index("rollouts_by_phase", "run_id", "phase", "id"),
        Index("rollouts_of_group", "group_id"),
        Index(
            "rollouts_with_tool_calls",
            "run_id",
            "id",
            sqlite_where=CALLED_A_TOOL,
            postgresql_where=CALLED_A_TOOL,
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    group_id: Mapped[str] = mapped_column(ForeignKey("groups.group_id"))
    workspace_id: Mapped[str] = mapped_column(String(64))
    run_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer)
    phase: Mapped[Phase] = mapped_column(String(16))
    row_index: Mapped[int] = mapped_column(Integer)
    sample_index: Mapped[int] = mapped_column(Integer)
    replacement: Mapped[int] = mapped_column(Integer, default=0)
    status: Mapped[RolloutStatus] = mapped_column(String(16))
    reward: Mapped[float | None] = mapped_column(Float, default=None)
    finish_reason: Mapped[str | None] = mapped_column(String(64), default=None)
    turns: Mapped[int] = mapped_column(Integer, default=0)
    tool_calls: Mapped[int] = mapped_column(Integer, default=0)
    tokens: Mapped[int] = mapped_column(Integer, default=0)
    duration_ms: Mapped[float] = mapped_column(Float, default=0.0)
    error: Mapped[str | None] = mapped_column(Text, default=None)
    trajectory_json: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    ended_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
