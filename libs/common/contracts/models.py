"""Base models, checkpoints, output models and the jobs that make them. Owner: registry."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from libs.common.contracts.blobs import ArtifactFile
from libs.common.contracts.envelope import Fact
from libs.common.contracts.requests import Page, PageRequest, Reply, Request
from libs.common.identifiers import CheckpointId, JobId, ModelId, RunId


class BaseModelView(Reply):
    """A base model: a Hugging Face folder, copied into the blob store."""

    id: ModelId
    name: str
    source: str
    status: Literal["pending", "processing", "ready", "error"]
    error: str | None
    licence: str
    size: int
    created_at: datetime


class BaseModelPage(Page):
    """Base models of a workspace."""

    items: list[BaseModelView]


class RegisterBaseModel(Request[BaseModelView], service="registry", name="register_base_model", command=True):
    """Register a Hugging Face folder below the operator's model roots; it is copied in the background."""

    name: str = Field(min_length=1, max_length=128)
    folder: str = Field(description="name of a folder in the model store, or a path below an allowed root")
    licence: str = Field(default="unknown", max_length=64)


class ListBaseModels(PageRequest, Request[BaseModelPage], service="registry", name="list_base_models"):
    """Base models of the caller's workspace."""


class GetBaseModel(Request[BaseModelView], service="registry", name="get_base_model"):
    """One base model."""

    model_id: ModelId


class BaseModelRegistered(Fact, key="base_model.registered", subject="model_id"):
    """A base model waits for being copied."""

    model_id: ModelId


class BaseModelReady(Fact, key="base_model.ready", subject="model_id"):
    """A base model can be trained."""

    model_id: ModelId


class BaseModelRejected(Fact, key="base_model.rejected", subject="model_id"):
    """The folder is no model that can be trained."""

    model_id: ModelId
    error: str


class CheckpointView(Reply):
    """A checkpoint of a run."""

    id: CheckpointId
    run_id: RunId
    step: int
    epoch: int
    size: int
    metrics: dict[str, float]
    model_id: ModelId | None = Field(description="the merged model, where one was made")
    created_at: datetime


class CheckpointPage(Page):
    """Checkpoints of a run, newest first."""

    items: list[CheckpointView]


class ListCheckpoints(PageRequest, Request[CheckpointPage], service="registry", name="list_checkpoints"):
    """Checkpoints of a run."""

    run_id: RunId


class GetCheckpoint(Request[CheckpointView], service="registry", name="get_checkpoint"):
    """One checkpoint."""

    checkpoint_id: CheckpointId


class JobView(Reply):
    """A merge or an export at work."""

    id: JobId
    kind: Literal["merge", "export"]
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    model_id: ModelId
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class ModelView(Reply):
    """An output model: a checkpoint merged into its base. `exported`: a Hugging Face folder of it can be downloaded."""

    id: ModelId
    name: str
    run_id: RunId
    checkpoint_id: CheckpointId
    base_model_id: ModelId
    status: Literal["pending", "ready", "error"]
    error: str | None
    size: int
    exported: bool
    created_at: datetime


class ModelPage(Page):
    """Output models."""

    items: list[ModelView]


class ModelFiles(Reply):
    """The files of an exported model."""

    files: list[ArtifactFile]


class MergeCheckpoint(Request[JobView], service="registry", name="merge_checkpoint", command=True):
    """Merge a checkpoint's adapter into its base model."""

    checkpoint_id: CheckpointId


class ExportModel(Request[JobView], service="registry", name="export_model", command=True):
    """Write a merged model as a Hugging Face folder with a model card."""

    model_id: ModelId


class ListModels(PageRequest, Request[ModelPage], service="registry", name="list_models"):
    """Output models of the caller's workspace."""

    run_id: RunId | None = None


class GetModel(Request[ModelView], service="registry", name="get_model"):
    """One output model."""

    model_id: ModelId


class ListModelFiles(Request[ModelFiles], service="registry", name="list_model_files"):
    """The files of a model's export.

    Raises:
        Conflict: the model has not been exported.
    """

    model_id: ModelId


class GetJob(Request[JobView], service="registry", name="get_job"):
    """One job."""

    job_id: JobId


class ModelReady(Fact, key="model.ready", subject="model_id"):
    """A checkpoint was merged."""

    model_id: ModelId
    checkpoint_id: CheckpointId


class ModelExported(Fact, key="model.exported", subject="model_id"):
    """A model's Hugging Face folder is complete."""

    model_id: ModelId


class JobFailed(Fact, key="job.failed", subject="job_id"):
    """A merge or an export failed."""

    job_id: JobId
    model_id: ModelId
    error: str
