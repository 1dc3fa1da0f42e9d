"""The tables of a service that keeps nothing of its own."""

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "answering_0001"
down_revision = None


def upgrade() -> None:
    create_common_tables()


def downgrade() -> None:
    drop_common_tables()
