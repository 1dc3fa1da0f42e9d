"""Tables of the registry. Texts named `…_json` hold contract models as JSON; every row names its workspace."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from libs.common.contracts.runs import RunStatus
from libs.common.tables import AwareTime
from services.registry.jobs import JobStatus
from services.registry.runs.states import RunEvent

ID = String(64)


class RegistryBase(DeclarativeBase):
    """Metadata of the registry's own tables."""


def _unique_where(name: str, columns: tuple[str, ...], condition: str) -> Index:
    where = text(condition)
    return Index(name, *columns, unique=True, sqlite_where=where, postgresql_where=where)


class WorkspaceRow(RegistryBase):
    """A workspace."""

    __tablename__ = "workspaces"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    timezone: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(AwareTime)


class KeyRow(RegistryBase):
    """An API key by its SHA-256 digest."""

    __tablename__ = "api_keys"
    __table_args__ = (Index("api_keys_of_workspace", "workspace_id", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    prefix: Mapped[str] = mapped_column(String(64))
    description: Mapped[str] = mapped_column(String(256))
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    last_used_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    revoked_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class ProjectRow(RegistryBase):
    """A project. `sync_id`: the last good sync of its present repository."""

    __tablename__ = "projects"
    __table_args__ = (
        Index("projects_of_workspace", "workspace_id", "id"),
        _unique_where("projects_by_name", ("workspace_id", "name"), "deleted_at IS NULL"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(64))
    description: Mapped[str] = mapped_column(Text)
    rollout_mode: Mapped[str] = mapped_column(String(16))
    repository: Mapped[str | None] = mapped_column(Text, default=None)
    branch: Mapped[str | None] = mapped_column(String(255), default=None)
    sync_id: Mapped[str | None] = mapped_column(ID, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    updated_at: Mapped[datetime] = mapped_column(AwareTime)
    deleted_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class SyncRow(RegistryBase):
    """One sync: a version of a project's code. `repository` and `branch` are those at the time of asking."""

    __tablename__ = "syncs"
    __table_args__ = (Index("syncs_of_project", "project_id", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID)
    project_id: Mapped[str] = mapped_column(ID, ForeignKey("projects.id"))
    status: Mapped[str] = mapped_column(String(16))
    repository: Mapped[str] = mapped_column(Text)
    branch: Mapped[str | None] = mapped_column(String(255))
    wanted_commit: Mapped[str | None] = mapped_column(String(40))
    commit: Mapped[str | None] = mapped_column(String(40), default=None)
    author: Mapped[str | None] = mapped_column(Text, default=None)
    message: Mapped[str | None] = mapped_column(Text, default=None)
    archive_json: Mapped[str | None] = mapped_column(Text, default=None)
    errors_json: Mapped[str] = mapped_column(Text, default="[]")
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    ended_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class FindingRow(RegistryBase):
    """Something that a sync found."""

    __tablename__ = "findings"

    sync_id: Mapped[str] = mapped_column(ID, ForeignKey("syncs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(Text)
    file: Mapped[str] = mapped_column(Text)
    line: Mapped[int] = mapped_column(Integer)
    function: Mapped[str | None] = mapped_column(Text)
    description: Mapped[str] = mapped_column(Text)


class DatasetRow(RegistryBase):
    """A dataset; `snapshot_json` is there once it is valid. A deleted one stays for the runs that used it."""

    __tablename__ = "datasets"
    __table_args__ = (Index("datasets_of_workspace", "workspace_id", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(128))
    file_name: Mapped[str] = mapped_column(String(255))
    format: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    status: Mapped[str] = mapped_column(String(16))
    upload_json: Mapped[str | None] = mapped_column(Text, default=None)
    snapshot_json: Mapped[str | None] = mapped_column(Text, default=None)
    report_json: Mapped[str | None] = mapped_column(Text, default=None)
    preview_json: Mapped[str] = mapped_column(Text, default="[]")
    error: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    updated_at: Mapped[datetime] = mapped_column(AwareTime)


class BaseModelRow(RegistryBase):
    """A base model; `manifest_json` is there once its folder is copied."""

    __tablename__ = "base_models"
    __table_args__ = (
        Index("base_models_of_workspace", "workspace_id", "id"),
        _unique_where("base_models_by_name", ("workspace_id", "name"), "status <> 'error'"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(128))
    source: Mapped[str] = mapped_column(Text)
    licence: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(Text, default=None)
    manifest_json: Mapped[str | None] = mapped_column(Text, default=None)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime] = mapped_column(AwareTime)


class RunRow(RegistryBase):
    """A run: its frozen inputs, and where it stands (`services.registry.runs.Progress`)."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_of_workspace", "workspace_id", "id"),
        Index("runs_of_project", "project_id", "id"),
        Index("runs_by_status", "workspace_id", "status", "id"),
        Index("runs_of_dataset", "dataset_id"),
        Index("runs_of_validation_dataset", "validation_dataset_id"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    project_id: Mapped[str] = mapped_column(ID, ForeignKey("projects.id"))
    dataset_id: Mapped[str] = mapped_column(ID)
    validation_dataset_id: Mapped[str | None] = mapped_column(ID, default=None)
    name: Mapped[str] = mapped_column(String(128))
    recipe_json: Mapped[str] = mapped_column(Text)
    order_json: Mapped[str] = mapped_column(Text)
    status: Mapped[RunStatus] = mapped_column(String(16))
    status_reason: Mapped[str | None] = mapped_column(Text, default=None)
    ended_by: Mapped[RunEvent | None] = mapped_column(String(32), default=None)
    epoch: Mapped[int] = mapped_column(Integer, default=0)
    attempt_over: Mapped[bool] = mapped_column(Boolean, default=True)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    losses: Mapped[int] = mapped_column(Integer, default=0)
    step: Mapped[int] = mapped_column(Integer, default=0)
    total_steps: Mapped[int] = mapped_column(Integer, default=0)
    reward: Mapped[float | None] = mapped_column(Float(53), default=None)
    validation_before: Mapped[float | None] = mapped_column(Float(53), default=None)
    validation_after: Mapped[float | None] = mapped_column(Float(53), default=None)
    error: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    started_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    ended_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class TransitionRow(RegistryBase):
    """One change of a run's status; `position` from 0."""

    __tablename__ = "run_transitions"

    run_id: Mapped[str] = mapped_column(ID, ForeignKey("runs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[datetime] = mapped_column(AwareTime)
    status: Mapped[RunStatus] = mapped_column(String(16))
    event: Mapped[str] = mapped_column(String(32))
    epoch: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str | None] = mapped_column(Text, default=None)


class CheckpointRow(RegistryBase):
    """A checkpoint whose manifest is in the blob store.

    `surplus_at`: more than its run keeps, so it is gone for users; `pruned_at`: its blobs are gone too.
    """

    __tablename__ = "checkpoints"
    __table_args__ = (
        Index("checkpoints_of_run", "run_id", "step", "id"),
        Index(
            "checkpoints_to_prune",
            "id",
            sqlite_where=text("surplus_at IS NOT NULL AND pruned_at IS NULL"),
            postgresql_where=text("surplus_at IS NOT NULL AND pruned_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID)
    run_id: Mapped[str] = mapped_column(ID, ForeignKey("runs.id"))
    epoch: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(Integer)
    size: Mapped[int] = mapped_column(BigInteger)
    manifest_json: Mapped[str] = mapped_column(Text)
    metrics_json: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    surplus_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
    pruned_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)


class ModelRow(RegistryBase):
    """An output model: a checkpoint merged into its base; `export_json` once it is exported."""

    __tablename__ = "models"
    __table_args__ = (
        Index("models_of_workspace", "workspace_id", "id"),
        Index("models_of_run", "run_id", "id"),
        _unique_where("models_of_checkpoint", ("checkpoint_id",), "status <> 'error'"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(256))
    run_id: Mapped[str] = mapped_column(ID, ForeignKey("runs.id"))
    checkpoint_id: Mapped[str] = mapped_column(ID, ForeignKey("checkpoints.id"))
    base_model_id: Mapped[str] = mapped_column(ID)
    status: Mapped[str] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(Text, default=None)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    manifest_json: Mapped[str | None] = mapped_column(Text, default=None)
    export_json: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)


class JobRow(RegistryBase):
    """A merge or an export, and where it stands (`services.registry.jobs.JobProgress`)."""

    __tablename__ = "jobs"
    __table_args__ = (Index("jobs_of_model", "model_id", "kind", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(ID, ForeignKey("workspaces.id"))
    kind: Mapped[str] = mapped_column(String(16))
    model_id: Mapped[str] = mapped_column(ID, ForeignKey("models.id"))
    status: Mapped[JobStatus] = mapped_column(String(16))
    order_json: Mapped[str] = mapped_column(Text)
    epoch: Mapped[int] = mapped_column(Integer, default=0)
    attempt_over: Mapped[bool] = mapped_column(Boolean, default=True)
    losses: Mapped[int] = mapped_column(Integer, default=0)
    error: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(AwareTime)
    ended_at: Mapped[datetime | None] = mapped_column(AwareTime, default=None)
