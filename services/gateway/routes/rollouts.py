"""Rollouts: every conversation that a run learned from, to read."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from libs.common.contracts.rollouts import GetRollout, ListRollouts, Phase, RolloutDetail, RolloutPage
from services.gateway.asking import Ask
from services.gateway.parameters import Cursor, Limit, RolloutIn, RunIn

router = APIRouter(prefix="/v1", tags=["rollouts"])


@router.get("/runs/{run_id}/rollouts", summary="List rollouts of a run")
async def list_rollouts(
    run_id: RunIn,
    ask: Ask,
    step: Annotated[int | None, Query(ge=0)] = None,
    phase: Phase | None = None,
    status: Literal["pending", "running", "sampled", "completed", "failed"] | None = None,
    with_tool_calls: Annotated[bool, Query(description="only rollouts in which a tool was called")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RolloutPage:
    """Newest step first."""
    return await ask(
        ListRollouts(
            run_id=run_id,
            step=step,
            phase=phase,
            status=status,
            with_tool_calls=with_tool_calls,
            limit=limit,
            cursor=cursor,
        )
    )


@router.get("/rollouts/{rollout_id}", summary="Get a rollout")
async def get_rollout(rollout_id: RolloutIn, ask: Ask) -> RolloutDetail:
    """What was said, what each reward function answered, and every sampled token with its log-probability."""
    return await ask(GetRollout(rollout_id=rollout_id))
