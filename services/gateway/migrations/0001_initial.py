"""The log of public events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "gateway_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    create_common_tables()
    op.create_table(
        "events",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("event_id", sa.String(64), nullable=False, unique=True),
        sa.Column("workspace_id", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("envelope", sa.Text, nullable=False),
        sa.Column("logged_at", sa.DateTime(timezone=True), nullable=False),
        # Without it SQLite gives the number of a forgotten newest row again, and a cursor would mean two events.
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_workspace", "events", ["workspace_id", "seq"])
    op.create_index("events_of_key", "events", ["workspace_id", "key", "seq"])
    op.create_index("events_of_subject", "events", ["workspace_id", "subject", "seq"])
    op.create_index("events_by_age", "events", ["logged_at"])
    horizon = op.create_table(
        "event_horizon",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(horizon, [{"id": 1, "seq": 0}])


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("event_horizon")
    op.drop_table("events")
    drop_common_tables()
