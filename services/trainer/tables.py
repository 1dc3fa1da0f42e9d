"""Tables of the trainer: attempts, what they asked for and what they said.

Texts named `…_json` hold one contract model each, as JSON.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.contracts.work import WorkKind
from libs.common.tables import AwareTime
from services.trainer.domain import AttemptState, DirectiveWord


class TrainerBase(DeclarativeBase):
    """Metadata of the trainer's own tables."""


class AttemptRow(TrainerBase):
    """One attempt of one piece of work. `recipe_json`: reference to the recipe, once a training attempt said hello."""

    __tablename__ = "attempts"

    work_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    epoch: Mapped[int] = mapped_column(Integer, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(String(64))
    work_kind: Mapped[WorkKind] = mapped_column(String(8))
    state: Mapped[AttemptState] = mapped_column(String(16))
    directive: Mapped[DirectiveWord] = mapped_column(String(16), default="go")
    order_json: Mapped[str] = mapped_column(Text)
    resume_json: Mapped[str | None] = mapped_column(Text, default=None)
    recipe_json: Mapped[str | None] = mapped_column(Text, default=None)
    engine_url: Mapped[str | None] = mapped_column(Text, default=None)
    step: Mapped[int] = mapped_column(Integer, default=0)
    outcome: Mapped[str | None] = mapped_column(String(16), default=None)
    error: Mapped[str | None] = mapped_column(Text, default=None)
    opened_at: Mapped[datetime] = mapped_column(AwareTime)
    started_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    ended_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class UnwantedWorkRow(TrainerBase):
    """Work that nobody wants any more: a lease that is granted for it later is told to cancel."""

    __tablename__ = "unwanted_works"

    work_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    at: Mapped[datetime] = mapped_column(AwareTime)


def _of_an_attempt() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["work_id", "epoch"], ["attempts.work_id", "attempts.epoch"])


class BatchRow(TrainerBase):
    """A batch that an attempt asked for: `asked` groups, of which `completed` are here."""

    __tablename__ = "batches"
    __table_args__ = (_of_an_attempt(), Index("batches_of_attempt", "work_id", "epoch", "step"))

    batch_id: Mapped[str] = mapped_column(String(160), primary_key=True)
    work_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer)
    phase: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64))
    asked: Mapped[int] = mapped_column(Integer)
    completed: Mapped[int] = mapped_column(Integer, default=0)
    requested_at: Mapped[datetime] = mapped_column(AwareTime)


class BatchGroupRow(TrainerBase):
    """A completed group; `position` counts from 1 in order of completion. The parcel goes once it was trained on."""

    __tablename__ = "batch_groups"
    __table_args__ = (
        ForeignKeyConstraint(["batch_id"], ["batches.batch_id"]),
        UniqueConstraint("batch_id", "group_id"),
    )

    batch_id: Mapped[str] = mapped_column(String(160), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    group_id: Mapped[str] = mapped_column(String(200))
    parcel_json: Mapped[str] = mapped_column(Text)


class StepRow(TrainerBase):
    """A step, or a validation at a step, that an attempt reported."""

    __tablename__ = "steps"
    __table_args__ = (_of_an_attempt(),)

    work_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    epoch: Mapped[int] = mapped_column(Integer, primary_key=True)
    step: Mapped[int] = mapped_column(Integer, primary_key=True)
    phase: Mapped[str] = mapped_column(String(16), primary_key=True)
    reported_at: Mapped[datetime] = mapped_column(AwareTime)


class CheckpointRow(TrainerBase):
    """A checkpoint that an attempt reported."""

    __tablename__ = "checkpoints"
    __table_args__ = (_of_an_attempt(),)

    checkpoint_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    work_id: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer)
    reported_at: Mapped[datetime] = mapped_column(AwareTime)
