"""Training runs: started from one configuration, watched, paused, resumed, cancelled."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Body as BodyParameter
from pydantic import Field

from libs.common.contracts.runs import (
    CancelRun,
    CreateRun,
    FrozenRecipe,
    GetRecipe,
    GetRun,
    ListRuns,
    ListTransitions,
    PauseRun,
    ResumeRun,
    RunPage,
    RunStatus,
    RunView,
    Transitions,
)
from libs.common.contracts.work import GetQueuePosition, QueuePosition
from libs.common.errors import FieldError, Invalid
from libs.common.identifiers import ProjectId, WorkId
from services.gateway.asking import Ask, Command
from services.gateway.parameters import Body, Cursor, Limit, ProjectIn, RunIn

router = APIRouter(prefix="/v1", tags=["runs"])

_EXAMPLE = {
    "name": "additions",
    "base_model": "SmolLM2-135M-Instruct",
    "dataset": "ds_01jd3k8q5v9m2r7t4x6y8z",
    "rewards": [{"name": "compute_reward.last_integer_matches"}],
    "sampling": {"max_response_length": 12},
    "training": {"lr": 1e-4, "max_steps": 14},
    "validation": {"dataset": "ds_01jd3k8q5v9m2r7t4x6y90"},
}


class Cancellation(Body):
    """Why a run is stopped."""

    reason: str | None = Field(default=None, max_length=1000)


@router.post(
    "/projects/{project_id}/runs",
    status_code=201,
    summary="Start a run",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/RunConfig"},
                    "examples": {"additions": {"value": _EXAMPLE}},
                }
            },
        }
    },
)
async def create_run(
    project_id: ProjectIn, config: Annotated[dict[str, object], BodyParameter()], ask: Command
) -> RunView:
    """Validates the configuration against everything that it names, freezes the inputs and queues the run.

    All faults are reported at once, each with its path.
    """
    try:
        return await ask(CreateRun(project_id=project_id, config=config))
    except Invalid as error:
        fields = [FieldError(field.path.removeprefix("config."), field.message) for field in error.fields]
        raise Invalid(error.message, fields=fields) from None


@router.get("/runs", summary="List runs")
async def list_runs(
    ask: Ask,
    project_id: Annotated[ProjectId | None, Query(max_length=128)] = None,
    status: RunStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunPage:
    """Runs of the workspace or of one project, newest first."""
    return await ask(ListRuns(project_id=project_id, status=status, limit=limit, cursor=cursor))


@router.get("/runs/{run_id}", summary="Get a run")
async def get_run(run_id: RunIn, ask: Ask) -> RunView:
    """Status, step, the reward of the last step, and the configuration."""
    return await ask(GetRun(run_id=run_id))


@router.post("/runs/{run_id}/cancel", summary="Cancel a run")
async def cancel_run(
    run_id: RunIn, ask: Command, body: Annotated[Cancellation | None, BodyParameter()] = None
) -> RunView:
    """Stops it for good and releases what it holds; checkpoints that were saved stay."""
    return await ask(CancelRun(run_id=run_id, reason=body.reason if body else None))


@router.post("/runs/{run_id}/pause", summary="Pause a run")
async def pause_run(run_id: RunIn, ask: Command) -> RunView:
    """Saves its state and releases its resources."""
    return await ask(PauseRun(run_id=run_id))


@router.post("/runs/{run_id}/resume", summary="Resume a run")
async def resume_run(run_id: RunIn, ask: Command) -> RunView:
    """Queues a paused run again; it goes on from its last checkpoint."""
    return await ask(ResumeRun(run_id=run_id))


@router.get("/runs/{run_id}/transitions", summary="History of a run's status")
async def list_transitions(run_id: RunIn, ask: Ask) -> Transitions:
    """Oldest first, each with the event that caused it."""
    return await ask(ListTransitions(run_id=run_id))


@router.get("/runs/{run_id}/recipe", summary="Frozen inputs of a run")
async def get_recipe(run_id: RunIn, ask: Ask) -> FrozenRecipe:
    """Commit, dataset, base model and configuration: everything that the run depends on, with checksums."""
    return await ask(GetRecipe(run_id=run_id))


@router.get("/runs/{run_id}/queue", summary="Place of a run in the queue")
async def get_queue_position(run_id: RunIn, ask: Ask) -> QueuePosition:
    """Its position and why it waits; `entry` is null when it does not wait."""
    await ask(GetRun(run_id=run_id))
    return await ask(GetQueuePosition(work_id=WorkId(run_id)))
