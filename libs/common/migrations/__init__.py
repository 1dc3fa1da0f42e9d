"""Alembic for every service: one environment, a folder of versions a service, one version table a schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from libs.common.database import Database

_ENVIRONMENT = Path(__file__).parent


async def migrate(database: Database, versions: Path) -> None:
    """Bring a service's schema to its newest version; several processes at once wait for each other."""
    async with database.engine.begin() as connection:
        if not database.is_sqlite:
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtext(:name))"),
                {"name": f"osmosis-migrate-{database.service}"},
            )
            await connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{database.service}"'))
        await connection.run_sync(_upgrade, versions)


def _upgrade(connection: Connection, versions: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
