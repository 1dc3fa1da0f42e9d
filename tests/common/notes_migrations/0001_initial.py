"""The schema of the notes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "notes_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Notes."""
    create_common_tables()
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Undo."""
    op.drop_table("notes")
    drop_common_tables()
