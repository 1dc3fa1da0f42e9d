"""Jobs on finished weights: merge a checkpoint into its base model, export a merged model as a Hugging Face folder.

Guaranteed: what a job makes exists once its manifest stands, and the end that names it is reported after that. Doing a
job again writes the same content under the same keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from libs.common.blobs.folders import download_folder, upload_folder
from libs.common.contracts.attempts import Ended, Started
from libs.common.contracts.recipes import ExportOrder, MergeOrder
from services.trainer.attempt.context import Context

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")

_log = structlog.get_logger(__name__)


async def merge(context: Context, order: MergeOrder) -> Ended:
    """Merge a checkpoint's adapter into its base model."""
    await context.link.started(Started())
    base = await download_folder(context.blobs, order.base_model.manifest, context.cache / "base-models")
    adapter = await download_folder(
        context.blobs, order.checkpoint, context.scratch / "checkpoint", only=ADAPTER_FILES
    )
    context.control.check()
    merged = await asyncio.to_thread(_merge, base, adapter, context.scratch / "merged")
    attributes = {
        "model_id": order.model_id,
        "checkpoint_id": order.checkpoint_id,
        "base_model": order.base_model.model_id,
        "licence": order.base_model.licence,
    }
    return await _keep(context, merged, f"models/{order.model_id}", "model", attributes)


async def export(context: Context, order: ExportOrder) -> Ended:
    """Write a merged model as a Hugging Face folder with a card."""
    await context.link.started(Started())
    model = await download_folder(context.blobs, order.model, context.scratch / "model")
    context.control.check()
    folder = await asyncio.to_thread(_export, model, context.scratch / "export", order)
    attributes = {"model_id": order.model_id, "base_model": order.base_model.model_id}
    return await _keep(context, folder, f"exports/{order.model_id}", "export", attributes)


async def _keep(
    context: Context, folder: Path, prefix: str, kind: str, attributes: Mapping[str, str]
) -> Ended:
    # Whoever is cancelled or over by now leaves nothing behind that looks finished.
    context.control.check()
    manifest = await upload_folder(context.blobs, folder, prefix, kind=kind, attributes=dict(attributes))
    _log.info("the result is kept", kind=kind, manifest=manifest.key)
    return Ended(outcome="completed", artifact=manifest)


def _merge(base: Path, adapter: Path, output: Path) -> Path:
    # The tensor libraries take seconds to load: here, in the computing thread, heartbeats do not wait for them.
    from services.trainer.artifacts.merging import merge_adapter

    return merge_adapter(base, adapter, output)


def _export(model: Path, output: Path, order: ExportOrder) -> Path:
    from services.trainer.artifacts.exporting import ModelCard, export_folder

    card = ModelCard(
        name=str(order.recipe.get("config", {}).get("name") or order.model_id),
        base_model=order.base_model.name,
        licence=order.base_model.licence,
        recipe=order.recipe,
        metrics=order.metrics,
    )
    return export_folder(model, output, card)
