"""The trainer's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "trainer_0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def _attempt_key(*, primary: bool) -> tuple[sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("work_id", sa.String(64), nullable=False, primary_key=primary),
        sa.Column("epoch", sa.Integer, nullable=False, primary_key=primary, autoincrement=False),
    )


def _of_an_attempt() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["work_id", "epoch"], ["attempts.work_id", "attempts.epoch"])


def upgrade() -> None:
    """Attempts, unwanted works, batches with their groups, steps, checkpoints."""
    create_common_tables()
    op.create_table(
        "attempts",
        *_attempt_key(primary=True),
        sa.Column("workspace_id", sa.String(64), nullable=False),
        sa.Column("work_kind", sa.String(8), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("directive", sa.String(16), nullable=False),
        sa.Column("order_json", sa.Text, nullable=False),
        sa.Column("resume_json", sa.Text),
        sa.Column("recipe_json", sa.Text),
        sa.Column("engine_url", sa.Text),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("error", sa.Text),
        sa.Column("opened_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("ended_at", _TIME),
    )
    op.create_table(
        "unwanted_works",
        sa.Column("work_id", sa.String(64), primary_key=True),
        sa.Column("at", _TIME, nullable=False),
    )
    _batches()
    op.create_table(
        "steps",
        *_attempt_key(primary=True),
        sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("phase", sa.String(16), primary_key=True),
        sa.Column("reported_at", _TIME, nullable=False),
        _of_an_attempt(),
    )
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.String(64), primary_key=True),
        *_attempt_key(primary=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("reported_at", _TIME, nullable=False),
        _of_an_attempt(),
    )


def _batches() -> None:
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.String(160), primary_key=True),
        *_attempt_key(primary=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("asked", sa.Integer, nullable=False),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("requested_at", _TIME, nullable=False),
        _of_an_attempt(),
    )
    op.create_index("batches_of_attempt", "batches", ["work_id", "epoch", "step"])
    op.create_table(
        "batch_groups",
        sa.Column("batch_id", sa.String(160), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("group_id", sa.String(200), nullable=False),
        sa.Column("parcel_json", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.batch_id"]),
        sa.UniqueConstraint("batch_id", "group_id"),
    )


def downgrade() -> None:
    """Undo `upgrade`."""
    for table in ("batch_groups", "batches", "checkpoints", "steps", "unwanted_works", "attempts"):
        op.drop_table(table)
    drop_common_tables()
