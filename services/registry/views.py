"""Rows as users see them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import TypeAdapter

from libs.common.contracts.code import Finding, SyncError, SyncView
from libs.common.contracts.datasets import DatasetReport, DatasetView
from libs.common.contracts.models import BaseModelView, CheckpointView, JobView, ModelView
from libs.common.contracts.recipes import Recipe
from libs.common.contracts.runs import RunView, Transition
from libs.common.contracts.workspaces import KeyView, ProjectView, WorkspaceView
from services.registry.runs import legacy_status
from services.registry.tables import (
    BaseModelRow,
    CheckpointRow,
    DatasetRow,
    JobRow,
    KeyRow,
    ModelRow,
    ProjectRow,
    RunRow,
    SyncRow,
    TransitionRow,
    WorkspaceRow,
)

SYNC_ERRORS = TypeAdapter(list[SyncError])


def workspace_view(row: WorkspaceRow) -> WorkspaceView:
    """A workspace."""
    return WorkspaceView.model_validate(row, from_attributes=True)


def key_view(row: KeyRow) -> KeyView:
    """A key, without its digest."""
    return KeyView.model_validate(row, from_attributes=True)


def project_view(row: ProjectRow) -> ProjectView:
    """A project."""
    return ProjectView.model_validate(row, from_attributes=True)


def sync_view(row: SyncRow, findings: Sequence[Finding]) -> SyncView:
    """A sync with what it found."""
    return SyncView.model_validate(
        {
            "id": row.id,
            "project_id": row.project_id,
            "status": row.status,
            "commit": row.commit,
            "author": row.author,
            "message": row.message,
            "findings": list(findings),
            "errors": SYNC_ERRORS.validate_json(row.errors_json),
            "created_at": row.created_at,
            "ended_at": row.ended_at,
        }
    )


def dataset_view(row: DatasetRow) -> DatasetView:
    """A dataset with its report and preview."""
    return DatasetView.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "file_name": row.file_name,
            "format": row.format,
            "size": row.size,
            "status": row.status,
            "report": DatasetReport.model_validate_json(row.report_json) if row.report_json else None,
            "error": row.error,
            "preview": json.loads(row.preview_json),
            "created_at": row.created_at,
            "updated_at": row.updated_at,
        }
    )


def base_model_view(row: BaseModelRow) -> BaseModelView:
    """A base model."""
    return BaseModelView.model_validate(row, from_attributes=True)


def run_view(row: RunRow) -> RunView:
    """A run."""
    config = Recipe.model_validate_json(row.recipe_json).config
    return RunView.model_validate(
        {
            "id": row.id,
            "project_id": row.project_id,
            "name": row.name,
            "notes": config.notes,
            "status": row.status,
            "legacy_status": legacy_status(row.status, row.ended_by),
            "status_reason": row.status_reason,
            "epoch": row.epoch,
            "attempts": row.attempts,
            "step": row.step,
            "total_steps": row.total_steps,
            "reward": row.reward,
            "validation_before": row.validation_before,
            "validation_after": row.validation_after,
            "error": row.error,
            "config": config,
            "created_at": row.created_at,
            "started_at": row.started_at,
            "ended_at": row.ended_at,
        }
    )


def transition_view(row: TransitionRow) -> Transition:
    """One change of a run's status."""
    return Transition.model_validate(row, from_attributes=True)


def checkpoint_view(row: CheckpointRow, model_id: str | None) -> CheckpointView:
    """A checkpoint, and the model that was merged from it."""
    return CheckpointView.model_validate(
        {
            "id": row.id,
            "run_id": row.run_id,
            "step": row.step,
            "epoch": row.epoch,
            "size": row.size,
            "metrics": json.loads(row.metrics_json),
            "model_id": model_id,
            "created_at": row.created_at,
        }
    )


def model_view(row: ModelRow) -> ModelView:
    """An output model."""
    return ModelView.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "run_id": row.run_id,
            "checkpoint_id": row.checkpoint_id,
            "base_model_id": row.base_model_id,
            "status": row.status,
            "error": row.error,
            "size": row.size,
            "exported": row.export_json is not None,
            "created_at": row.created_at,
        }
    )


def job_view(row: JobRow) -> JobView:
    """A job."""
    return JobView.model_validate(row, from_attributes=True)
