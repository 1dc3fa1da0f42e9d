"""Datasets: announced, then their file streamed, then validated row by row in the background."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request
from pydantic import Field

from libs.common.contracts.datasets import (
    CreateDataset,
    DatasetPage,
    DatasetView,
    DeleteDataset,
    GetDataset,
    ListDatasets,
)
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, DatasetIn, Limit
from services.gateway.state import gateway_of
from services.gateway.uploads import upload

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])


class NewDataset(Body):
    """A dataset to announce."""

    name: str = Field(default="", max_length=128, examples=["additions"])
    file_name: str = Field(
        min_length=1,
        max_length=255,
        description="its suffix says the format: .jsonl, .csv or .parquet",
        examples=["train.jsonl"],
    )


@router.post("", status_code=201, summary="Announce a dataset")
async def create_dataset(body: NewDataset, ask: Command) -> DatasetView:
    """Then send the file to `/v1/datasets/{id}/content`."""
    return await ask(CreateDataset(name=body.name, file_name=body.file_name))


@router.put(
    "/{dataset_id}/content",
    summary="Upload a dataset's file",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_content(
    dataset_id: DatasetIn,
    request: Request,
    ask: Ask,
    _content_digest: Annotated[
        str | None,
        Header(alias="Content-Digest", description="sha-256=:<base64>: (RFC 9530); checked when given"),
    ] = None,
    _content_sha256: Annotated[
        str | None, Header(alias="X-Content-SHA256", description="the same in hex, wins over Content-Digest")
    ] = None,
) -> DatasetView:
    """The body is the file as it is, up to 5 GiB, streamed. What breaks off or has another digest leaves nothing.

    Validation goes on in the background: `status` becomes `uploaded`, or `error` with a report of rows and columns.
    """
    return await upload(request, ask, gateway_of(request).platform.blobs, dataset_id)


@router.get("", summary="List datasets")
async def list_datasets(ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> DatasetPage:
    """Datasets of the workspace."""
    return await ask(ListDatasets(limit=limit, cursor=cursor))


@router.get("/{dataset_id}", summary="Get a dataset")
async def get_dataset(dataset_id: DatasetIn, ask: Ask) -> DatasetView:
    """Status, report, preview."""
    return await ask(GetDataset(dataset_id=dataset_id))


@router.delete("/{dataset_id}", status_code=204, summary="Delete a dataset")
async def delete_dataset(dataset_id: DatasetIn, ask: Command) -> None:
    """A conflict while an active run needs it."""
    await ask(DeleteDataset(dataset_id=dataset_id))
