"""Datasets: uploads, validation reports, versions. Owner: registry."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Contract, Fact
from libs.common.contracts.requests import Done, Page, PageRequest, Reply, Request
from libs.common.identifiers import DatasetId

DatasetFormat = Literal["jsonl", "csv", "parquet"]


class RowError(Contract):
    """A fault of a dataset: 0-based `row`, `field` (None: the whole row)."""

    row: int | None
    field: str | None
    kind: str
    message: str


class DatasetReport(Contract):
    """The outcome of validation. `errors` holds the first 100; `counts` all of them by kind."""

    rows: int
    columns: list[str]
    errors: list[RowError]
    warnings: list[RowError]
    counts: dict[str, int]
    statistics: dict[str, Any] = Field(default_factory=dict[str, Any])


class DatasetView(Reply):
    """A dataset."""

    id: DatasetId
    name: str
    file_name: str
    format: DatasetFormat
    size: int
    status: Literal["pending", "uploading", "processing", "uploaded", "error", "deleted"]
    report: DatasetReport | None
    error: str | None
    preview: list[dict[str, Any]]
    created_at: datetime
    updated_at: datetime


class DatasetPage(Page):
    """Datasets of a workspace."""

    items: list[DatasetView]


class CreateDataset(Request[DatasetView], service="registry", name="create_dataset", command=True):
    """Announce a dataset file; its suffix says the format."""

    name: str = Field(default="", max_length=128)
    file_name: str = Field(min_length=1, max_length=255)


class CompleteUpload(Request[DatasetView], service="registry", name="complete_upload", command=True):
    """The file is in the blob store: validate it in the background."""

    dataset_id: DatasetId
    content: BlobRef


class ListDatasets(PageRequest, Request[DatasetPage], service="registry", name="list_datasets"):
    """Datasets of the caller's workspace."""


class GetDataset(Request[DatasetView], service="registry", name="get_dataset"):
    """One dataset."""

    dataset_id: DatasetId


class DeleteDataset(Request[Done], service="registry", name="delete_dataset", command=True):
    """Delete a dataset; a Conflict while an active run needs it."""

    dataset_id: DatasetId


class DatasetUploaded(Fact, key="dataset.uploaded", subject="dataset_id"):
    """A file arrived and waits for validation."""

    dataset_id: DatasetId
    content: BlobRef


class DatasetReady(Fact, key="dataset.ready", subject="dataset_id"):
    """The dataset is valid and can be trained on."""

    dataset_id: DatasetId
    rows: int


class DatasetRejected(Fact, key="dataset.rejected", subject="dataset_id"):
    """The dataset is invalid."""

    dataset_id: DatasetId
    errors: list[RowError]
