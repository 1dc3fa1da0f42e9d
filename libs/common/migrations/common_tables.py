"""The common tables as a service's first migration makes them.

They are written out here, not taken from the models, so that an old version stays what it was.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def create_common_tables() -> None:
    """Outbox, inbox, replies, dead letters."""
    op.create_table(
        "outbox",
        sa.Column("seq", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("event_id", sa.String(64), nullable=False, unique=True),
        sa.Column("envelope", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("published_at", _TIME),
        sa.Column("hand_overs", sa.Integer, nullable=False, server_default="0"),
    )
    unpublished = sa.text("published_at IS NULL")
    op.create_index(
        "outbox_unpublished", "outbox", ["seq"], sqlite_where=unpublished, postgresql_where=unpublished
    )
    op.create_table(
        "inbox",
        sa.Column("queue", sa.String(64), primary_key=True),
        sa.Column("event_id", sa.String(64), primary_key=True),
        sa.Column("handled_at", _TIME, nullable=False, index=True),
    )
    op.create_table(
        "replies",
        sa.Column("scope", sa.String(200), primary_key=True),
        sa.Column("idempotency_key", sa.String(200), primary_key=True),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("created_at", _TIME, nullable=False, index=True),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("queue", sa.String(64), nullable=False),
        sa.Column("type", sa.String(128), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("envelope", sa.Text, nullable=False),
        sa.Column("died_at", _TIME, nullable=False, index=True),
    )


def drop_common_tables() -> None:
    """Undo `create_common_tables`."""
    for table in ("dead_letters", "replies", "inbox", "outbox"):
        op.drop_table(table)
