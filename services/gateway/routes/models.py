"""Output models: merged from checkpoints, exported as Hugging Face folders, downloaded file by file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from libs.common.contracts.models import (
    ExportModel,
    GetModel,
    JobView,
    ListModelFiles,
    ListModels,
    ModelFiles,
    ModelPage,
    ModelView,
)
from libs.common.errors import NotFound
from libs.common.identifiers import RunId
from services.gateway.asking import Ask, Command
from services.gateway.downloads import download
from services.gateway.openapi_document import documented
from services.gateway.parameters import Cursor, Limit, ModelIn
from services.gateway.state import gateway_of

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", summary="List models")
async def list_models(
    ask: Ask,
    run_id: Annotated[RunId | None, Query(max_length=128)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ModelPage:
    """Models of the workspace, or of one run."""
    return await ask(ListModels(run_id=run_id, limit=limit, cursor=cursor))


@router.get("/{model_id}", summary="Get a model")
async def get_model(model_id: ModelIn, ask: Ask) -> ModelView:
    """The checkpoint and base it was merged from, and whether it is exported."""
    return await ask(GetModel(model_id=model_id))


@router.post("/{model_id}/export", status_code=202, summary="Export a model")
async def export_model(model_id: ModelIn, ask: Command) -> JobView:
    """Starts a job that writes the model as a Hugging Face folder with a model card."""
    return await ask(ExportModel(model_id=model_id))


@router.get("/{model_id}/files", summary="Files of an exported model", responses=documented(409))
async def list_model_files(model_id: ModelIn, ask: Ask) -> ModelFiles:
    """Paths, sizes and checksums. A conflict when the model is not exported."""
    return await ask(ListModelFiles(model_id=model_id))


@router.get(
    "/{model_id}/files/{path:path}",
    summary="Download a file of an exported model",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file; `ETag` is its SHA-256",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        206: {"description": "One range of it"},
        304: {"description": "The client has it already (`If-None-Match`)"},
        **documented(409, 416),
    },
)
async def download_model_file(
    model_id: ModelIn,
    path: Annotated[str, Path(max_length=1024, examples=["model.safetensors"])],
    ask: Ask,
    request: Request,
    _range: Annotated[
        str | None, Header(alias="Range", description="one range in bytes, to go on with a download")
    ] = None,
) -> Response:
    """Streams the file; a download that broke off goes on with `Range` and `If-Range`."""
    listing = await ask(ListModelFiles(model_id=model_id))
    for file in listing.files:
        if file.path == path:
            return await download(gateway_of(request).platform.blobs, file.blob, path, request.headers)
    raise NotFound(f"no file {path} in model {model_id}; GET /v1/models/{model_id}/files lists them")
