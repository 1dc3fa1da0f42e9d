"""The scheduler's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "scheduler_0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Nodes, queue, leases."""
    create_common_tables()
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("last_seen", _TIME, nullable=False),
    )
    op.create_table(
        "queue",
        sa.Column("work_id", sa.String(64), primary_key=True),
        sa.Column("work_kind", sa.String(8), nullable=False),
        sa.Column("workspace_id", sa.String(64), nullable=False, index=True),
        sa.Column("work_order", sa.JSON, nullable=False),
        sa.Column("resources", sa.JSON, nullable=False),
        sa.Column("resume_from", sa.JSON),
        sa.Column("queued_at", _TIME, nullable=False),
        sa.Column("position", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
    )
    op.create_table(
        "leases",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("work_id", sa.String(64), nullable=False),
        sa.Column("work_kind", sa.String(8), nullable=False),
        sa.Column("workspace_id", sa.String(64), nullable=False, index=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("node_id", sa.String(128), nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("granted_at", _TIME, nullable=False),
        sa.Column("heartbeat_at", _TIME),
        sa.Column("releasing_since", _TIME),
        sa.Column("pid", sa.Integer),
        sa.Column("pid_started", sa.String(32)),
    )
    op.create_index("leases_work_epoch", "leases", ["work_id", "epoch"], unique=True)
    active = sa.text("state IN ('held', 'releasing')")
    op.create_index("leases_active", "leases", ["node_id"], sqlite_where=active, postgresql_where=active)


def downgrade() -> None:
    """Undo."""
    for table in ("leases", "queue", "nodes"):
        op.drop_table(table)
    drop_common_tables()
