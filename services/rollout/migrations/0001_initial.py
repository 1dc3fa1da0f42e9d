"""The broker's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "rollout_0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Fences, batches, groups, rollouts."""
    create_common_tables()
    op.create_table(
        "fences",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("newest", sa.Integer, nullable=False),
        sa.Column("over_through", sa.Integer, nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.String(160), primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("request_json", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
    )
    _groups()
    _rollouts()


def _groups() -> None:
    op.create_table(
        "groups",
        sa.Column("seq", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("group_id", sa.String(200), nullable=False, unique=True),
        sa.Column("batch_id", sa.String(160), sa.ForeignKey("batches.batch_id"), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("row_index", sa.Integer, nullable=False),
        sa.Column("n_samples", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("claimed_until", _TIME),
        sa.Column("parcel_json", sa.Text),
    )
    still_open = sa.text("state IN ('waiting', 'running')")
    op.create_index("groups_open", "groups", ["seq"], sqlite_where=still_open, postgresql_where=still_open)
    op.create_index("groups_of_run", "groups", ["run_id", "state"])


def _rollouts() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("group_id", sa.String(200), sa.ForeignKey("groups.group_id"), nullable=False),
        sa.Column("workspace_id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("row_index", sa.Integer, nullable=False),
        sa.Column("sample_index", sa.Integer, nullable=False),
        sa.Column("replacement", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reward", sa.Float),
        sa.Column("finish_reason", sa.String(64)),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("tool_calls", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("duration_ms", sa.Float, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("trajectory_json", sa.Text),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("ended_at", _TIME),
    )
    op.create_index("rollouts_of_run", "rollouts", ["run_id", "id"])
    op.create_index("rollouts_of_step", "rollouts", ["run_id", "step", "id"])
    op.create_index("rollouts_by_status", "rollouts", ["run_id", "status", "id"])
    op.create_index("rollouts_by_phase", "rollouts", ["run_id", "phase", "id"])
    op.create_index("rollouts_of_group", "rollouts", ["group_id"])
    called = sa.text("tool_calls > 0")
    op.create_index(
        "rollouts_with_tool_calls", "rollouts", ["run_id", "id"], sqlite_where=called, postgresql_where=called
    )


def downgrade() -> None:
    """Drop everything."""
    for table in ("rollouts", "groups", "batches", "fences"):
        op.drop_table(table)
    drop_common_tables()
