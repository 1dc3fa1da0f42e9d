"""The registry's first schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from libs.common.migrations.common_tables import create_common_tables, drop_common_tables

revision = "registry_0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.String(64)
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Workspaces, keys, projects, code, datasets, base models, runs, checkpoints, models, jobs."""
    create_common_tables()
    _workspaces()
    _code()
    _datasets()
    _base_models()
    _runs()
    _models()


def downgrade() -> None:
    """Undo `upgrade`."""
    for table in (
        "jobs",
        "models",
        "checkpoints",
        "run_transitions",
        "runs",
        "base_models",
        "datasets",
        "findings",
        "syncs",
        "projects",
        "api_keys",
        "workspaces",
    ):
        op.drop_table(table)
    drop_common_tables()


def _id() -> sa.Column[str]:
    return sa.Column("id", _ID, primary_key=True)


def _needed(name: str, kind: Any, *references: sa.ForeignKey) -> sa.Column[Any]:
    return sa.Column(name, kind, *references, nullable=False)


def _unique_where(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=True, sqlite_where=where, postgresql_where=where)


def _workspaces() -> None:
    op.create_table(
        "workspaces",
        _id(),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        _needed("timezone", sa.String(64)),
        _needed("created_at", _TIME),
    )
    op.create_table(
        "api_keys",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        _needed("prefix", sa.String(64)),
        _needed("description", sa.String(256)),
        _needed("created_at", _TIME),
        sa.Column("last_used_at", _TIME),
        sa.Column("revoked_at", _TIME),
    )
    op.create_index("api_keys_of_workspace", "api_keys", ["workspace_id", "id"])
    op.create_table(
        "projects",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("name", sa.String(64)),
        _needed("description", sa.Text),
        _needed("rollout_mode", sa.String(16)),
        sa.Column("repository", sa.Text),
        sa.Column("branch", sa.String(255)),
        sa.Column("sync_id", _ID),
        _needed("created_at", _TIME),
        _needed("updated_at", _TIME),
        sa.Column("deleted_at", _TIME),
    )
    op.create_index("projects_of_workspace", "projects", ["workspace_id", "id"])
    _unique_where("projects_by_name", "projects", ["workspace_id", "name"], "deleted_at IS NULL")


def _code() -> None:
    op.create_table(
        "syncs",
        _id(),
        _needed("workspace_id", _ID),
        _needed("project_id", _ID, sa.ForeignKey("projects.id")),
        _needed("status", sa.String(16)),
        _needed("repository", sa.Text),
        sa.Column("branch", sa.String(255)),
        sa.Column("wanted_commit", sa.String(40)),
        sa.Column("commit", sa.String(40)),
        sa.Column("author", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("archive_json", sa.Text),
        _needed("errors_json", sa.Text),
        _needed("created_at", _TIME),
        sa.Column("ended_at", _TIME),
    )
    op.create_index("syncs_of_project", "syncs", ["project_id", "id"])
    op.create_table(
        "findings",
        sa.Column("sync_id", _ID, sa.ForeignKey("syncs.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        _needed("kind", sa.String(16)),
        _needed("name", sa.Text),
        _needed("file", sa.Text),
        _needed("line", sa.Integer),
        sa.Column("function", sa.Text),
        _needed("description", sa.Text),
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("name", sa.String(128)),
        _needed("file_name", sa.String(255)),
        _needed("format", sa.String(16)),
        _needed("size", sa.BigInteger),
        _needed("status", sa.String(16)),
        sa.Column("upload_json", sa.Text),
        sa.Column("snapshot_json", sa.Text),
        sa.Column("report_json", sa.Text),
        _needed("preview_json", sa.Text),
        sa.Column("error", sa.Text),
        _needed("created_at", _TIME),
        _needed("updated_at", _TIME),
    )
    op.create_index("datasets_of_workspace", "datasets", ["workspace_id", "id"])


def _base_models() -> None:
    op.create_table(
        "base_models",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("name", sa.String(128)),
        _needed("source", sa.Text),
        _needed("licence", sa.String(64)),
        _needed("status", sa.String(16)),
        sa.Column("error", sa.Text),
        sa.Column("manifest_json", sa.Text),
        _needed("size", sa.BigInteger),
        _needed("created_at", _TIME),
    )
    op.create_index("base_models_of_workspace", "base_models", ["workspace_id", "id"])
    _unique_where("base_models_by_name", "base_models", ["workspace_id", "name"], "status <> 'error'")


def _runs() -> None:
    op.create_table(
        "runs",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("project_id", _ID, sa.ForeignKey("projects.id")),
        _needed("dataset_id", _ID),
        sa.Column("validation_dataset_id", _ID),
        _needed("name", sa.String(128)),
        _needed("recipe_json", sa.Text),
        _needed("order_json", sa.Text),
        _needed("status", sa.String(16)),
        sa.Column("status_reason", sa.Text),
        sa.Column("ended_by", sa.String(32)),
        _needed("epoch", sa.Integer),
        _needed("attempt_over", sa.Boolean),
        _needed("attempts", sa.Integer),
        _needed("losses", sa.Integer),
        _needed("step", sa.Integer),
        _needed("total_steps", sa.Integer),
        sa.Column("reward", sa.Float(53)),
        sa.Column("validation_before", sa.Float(53)),
        sa.Column("validation_after", sa.Float(53)),
        sa.Column("error", sa.Text),
        _needed("created_at", _TIME),
        sa.Column("started_at", _TIME),
        sa.Column("ended_at", _TIME),
    )
    op.create_index("runs_of_workspace", "runs", ["workspace_id", "id"])
    op.create_index("runs_of_project", "runs", ["project_id", "id"])
    op.create_index("runs_by_status", "runs", ["workspace_id", "status", "id"])
    op.create_index("runs_of_dataset", "runs", ["dataset_id"])
    op.create_index("runs_of_validation_dataset", "runs", ["validation_dataset_id"])
    op.create_table(
        "run_transitions",
        sa.Column("run_id", _ID, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        _needed("at", _TIME),
        _needed("status", sa.String(16)),
        _needed("event", sa.String(32)),
        _needed("epoch", sa.Integer),
        sa.Column("reason", sa.Text),
    )


def _models() -> None:
    op.create_table(
        "checkpoints",
        _id(),
        _needed("workspace_id", _ID),
        _needed("run_id", _ID, sa.ForeignKey("runs.id")),
        _needed("epoch", sa.Integer),
        _needed("step", sa.Integer),
        _needed("size", sa.BigInteger),
        _needed("manifest_json", sa.Text),
        _needed("metrics_json", sa.Text),
        _needed("created_at", _TIME),
        sa.Column("surplus_at", _TIME),
        sa.Column("pruned_at", _TIME),
    )
    op.create_index("checkpoints_of_run", "checkpoints", ["run_id", "step", "id"])
    surplus = sa.text("surplus_at IS NOT NULL AND pruned_at IS NULL")
    op.create_index(
        "checkpoints_to_prune", "checkpoints", ["id"], sqlite_where=surplus, postgresql_where=surplus
    )
    op.create_table(
        "models",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("name", sa.String(256)),
        _needed("run_id", _ID, sa.ForeignKey("runs.id")),
        _needed("checkpoint_id", _ID, sa.ForeignKey("checkpoints.id")),
        _needed("base_model_id", _ID),
        _needed("status", sa.String(16)),
        sa.Column("error", sa.Text),
        _needed("size", sa.BigInteger),
        sa.Column("manifest_json", sa.Text),
        sa.Column("export_json", sa.Text),
        _needed("created_at", _TIME),
    )
    op.create_index("models_of_workspace", "models", ["workspace_id", "id"])
    op.create_index("models_of_run", "models", ["run_id", "id"])
    _unique_where("models_of_checkpoint", "models", ["checkpoint_id"], "status <> 'error'")
    op.create_table(
        "jobs",
        _id(),
        _needed("workspace_id", _ID, sa.ForeignKey("workspaces.id")),
        _needed("kind", sa.String(16)),
        _needed("model_id", _ID, sa.ForeignKey("models.id")),
        _needed("status", sa.String(16)),
        _needed("order_json", sa.Text),
        _needed("epoch", sa.Integer),
        _needed("attempt_over", sa.Boolean),
        _needed("losses", sa.Integer),
        sa.Column("error", sa.Text),
        _needed("created_at", _TIME),
        sa.Column("ended_at", _TIME),
    )
    op.create_index("jobs_of_model", "jobs", ["model_id", "kind", "id"])
