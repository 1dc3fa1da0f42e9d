"""Checkpoints of runs, and merging one into its base model."""

from __future__ import annotations

from fastapi import APIRouter

from libs.common.contracts.models import (
    CheckpointPage,
    CheckpointView,
    GetCheckpoint,
    JobView,
    ListCheckpoints,
    MergeCheckpoint,
)
from services.gateway.asking import Ask, Command
from services.gateway.parameters import CheckpointIn, Cursor, Limit, RunIn

router = APIRouter(prefix="/v1", tags=["checkpoints"])


@router.get("/runs/{run_id}/checkpoints", summary="List checkpoints of a run")
async def list_checkpoints(
    run_id: RunIn, ask: Ask, limit: Limit = 50, cursor: Cursor = None
) -> CheckpointPage:
    """Newest first."""
    return await ask(ListCheckpoints(run_id=run_id, limit=limit, cursor=cursor))


@router.get("/checkpoints/{checkpoint_id}", summary="Get a checkpoint")
async def get_checkpoint(checkpoint_id: CheckpointIn, ask: Ask) -> CheckpointView:
    """A checkpoint, and the model that was merged from it."""
    return await ask(GetCheckpoint(checkpoint_id=checkpoint_id))


@router.post("/checkpoints/{checkpoint_id}/merge", status_code=202, summary="Merge a checkpoint")
async def merge_checkpoint(checkpoint_id: CheckpointIn, ask: Command) -> JobView:
    """Starts a job that adds the adapter to its base model; the job names the model that will be."""
    return await ask(MergeCheckpoint(checkpoint_id=checkpoint_id))
