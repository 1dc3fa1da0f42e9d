"""The rewards service's first schema: the common tables alone."""

from __future__ import annotations

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "rewards_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Outbox, inbox, replies, dead letters."""
    create_common_tables()


def downgrade() -> None:
    """Undo `upgrade`."""
    drop_common_tables()
