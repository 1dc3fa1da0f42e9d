"""Merges and exports at work."""

from __future__ import annotations

from fastapi import APIRouter

from libs.common.contracts.models import GetJob, JobView
from services.gateway.asking import Ask
from services.gateway.parameters import JobIn

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("/{job_id}", summary="Get a job")
async def get_job(job_id: JobIn, ask: Ask) -> JobView:
    """How far a merge or an export is, and its error where it failed."""
    return await ask(GetJob(job_id=job_id))
