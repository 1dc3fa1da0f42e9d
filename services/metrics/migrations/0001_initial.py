"""The first schema of metrics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "metrics_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Runs, points, counts."""
    create_common_tables()
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("workspace_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reward", sa.Float),
        sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
    )
    op.create_index("runs_active", "runs", ["active"])
    op.create_table(
        "points",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "rollout_counts",
        sa.Column("status", sa.String(16), primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Undo."""
    for table in ("rollout_counts", "points", "runs"):
        op.drop_table(table)
    drop_common_tables()
