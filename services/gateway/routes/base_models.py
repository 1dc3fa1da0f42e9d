"""Base models: Hugging Face folders of the operator's machine, copied into the blob store."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from libs.common.contracts.models import (
    BaseModelPage,
    BaseModelView,
    GetBaseModel,
    ListBaseModels,
    RegisterBaseModel,
)
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, Limit, ModelIn

router = APIRouter(prefix="/v1/base-models", tags=["base models"])


class NewBaseModel(Body):
    """A base model to register."""

    name: str = Field(min_length=1, max_length=128, examples=["SmolLM2-135M-Instruct"])
    folder: str = Field(
        min_length=1,
        max_length=4096,
        description="a folder of the model store, or a path below a model root that the operator allows",
        examples=["SmolLM2-135M-Instruct"],
    )
    licence: str = Field(default="unknown", max_length=64, examples=["apache-2.0"])


@router.post("", status_code=201, summary="Register a base model")
async def register_base_model(body: NewBaseModel, ask: Command) -> BaseModelView:
    """It is copied in the background: `status` becomes `ready`, or `error` with the reason."""
    return await ask(RegisterBaseModel(name=body.name, folder=body.folder, licence=body.licence))


@router.get("", summary="List base models")
async def list_base_models(ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> BaseModelPage:
    """Base models of the workspace."""
    return await ask(ListBaseModels(limit=limit, cursor=cursor))


@router.get("/{model_id}", summary="Get a base model")
async def get_base_model(model_id: ModelIn, ask: Ask) -> BaseModelView:
    """A base model and how far its copy is."""
    return await ask(GetBaseModel(model_id=model_id))
