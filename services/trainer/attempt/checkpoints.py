"""Brings a checkpoint's folder into the blob store and says so, in that order.

Guaranteed: the service hears of a checkpoint only once its manifest stands behind all of its parts. Parts lie under an
id of their own, so that an attempt which is over writes over nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from libs.common.blobs.folders import upload_folder
from libs.common.contracts.attempts import CheckpointReport
from libs.common.contracts.recipes import Recipe
from libs.common.identifiers import CheckpointId, new_id
from services.trainer.attempt.context import Context

_log = structlog.get_logger(__name__)


async def keep_checkpoint(
    context: Context, recipe: Recipe, folder: Path, step: int, metrics: Mapping[str, float]
) -> CheckpointId:
    """Upload the folder of step `step` and report it; `metrics` are those of the step."""
    checkpoint_id = CheckpointId(new_id("ckpt", context.clock.now()))
    manifest = await upload_folder(
        context.blobs,
        folder,
        f"checkpoints/{recipe.run_id}/{checkpoint_id}",
        kind="checkpoint",
        attributes={
            "run_id": recipe.run_id,
            "epoch": context.epoch,
            "step": step,
            "base_model": recipe.base_model.model_id,
        },
    )
    size = await asyncio.to_thread(folder_size, folder)
    report = CheckpointReport(
        checkpoint_id=checkpoint_id, step=step, manifest=manifest, size=size, metrics=dict(metrics)
    )
    await context.link.report_checkpoint(report)
    _log.info("checkpoint saved", checkpoint=checkpoint_id, step=step, bytes=size)
    return checkpoint_id


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
