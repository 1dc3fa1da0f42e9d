"""Runs: their facts, what users see of them, and what they ask. Owner of a run's status: registry."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Contract, Fact
from libs.common.contracts.recipes import Recipe, ResourceConfig, ResumePoint, RunConfig
from libs.common.contracts.requests import Page, PageRequest, Reply, Request
from libs.common.identifiers import ProjectId, RunId

RunStatus = Literal[
    "pending",
    "queued",
    "provisioning",
    "running",
    "pausing",
    "paused",
    "completed",
    "failed",
    "cancelled",
]
TERMINAL: frozenset[RunStatus] = frozenset({"completed", "failed", "cancelled"})


class RunFact(Fact):
    """Base of the facts about a run's status."""

    run_id: RunId
    project_id: ProjectId


class RunCreated(RunFact, key="run.created", subject="run_id"):
    """A user asked for a run and its configuration is valid."""

    name: str


class RunQueued(RunFact, key="run.queued", subject="run_id"):
    """The run's inputs are frozen in `order` (a TrainOrder in JSON) and it waits for resources.

    Stated again after a lost node, a preemption or a resume, then with the checkpoint to go on from.
    """

    order: BlobRef
    resources: ResourceConfig
    resume_from: ResumePoint | None = None


class RunProvisioning(RunFact, key="run.provisioning", subject="run_id"):
    """Resources are held; the attempt's process is starting."""

    epoch: int


class RunRunning(RunFact, key="run.running", subject="run_id"):
    """The attempt is up."""

    epoch: int


class RunPausing(RunFact, key="run.pausing", subject="run_id"):
    """A user asked to pause: the attempt saves its state and stops."""

    epoch: int


class RunPaused(RunFact, key="run.paused", subject="run_id"):
    """State saved, resources released."""


class RunCompleted(RunFact, key="run.completed", subject="run_id"):
    """All steps are done."""

    step: int


class RunFailed(RunFact, key="run.failed", subject="run_id"):
    """The run ended with an error that the user reads."""

    error: str


class RunCancelled(RunFact, key="run.cancelled", subject="run_id"):
    """A user stopped the run."""


class RunView(Reply):
    """A run as its users see it."""

    id: RunId
    project_id: ProjectId
    name: str
    notes: str
    status: RunStatus
    legacy_status: str = Field(description="the word of older clients")
    status_reason: str | None = None
    epoch: int
    attempts: int
    step: int
    total_steps: int
    reward: float | None = Field(description="training reward of the last step")
    validation_before: float | None
    validation_after: float | None
    error: str | None
    config: RunConfig
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RunPage(Page):
    """Runs, newest first."""

    items: list[RunView]


class Transition(Contract):
    """One change of a run's status."""

    at: datetime
    status: RunStatus
    event: str
    epoch: int
    reason: str | None = None


class Transitions(Reply):
    """The history of a run's status, oldest first."""

    items: list[Transition]


class CreateRun(Request[RunView], service="registry", name="create_run", command=True):
    """Validate a configuration against everything that it names, freeze it and queue the run.

    `config` is the user's JSON as it came, so that every error is reported at once with its path.

    Raises:
        Invalid: with every fault of the configuration.
    """

    project_id: ProjectId
    config: dict[str, Any]


class ListRuns(PageRequest, Request[RunPage], service="registry", name="list_runs"):
    """Runs of a project, or of the workspace."""

    project_id: ProjectId | None = None
    status: RunStatus | None = None


class GetRun(Request[RunView], service="registry", name="get_run"):
    """One run."""

    run_id: RunId


class FrozenRecipe(Reply):
    """The frozen inputs of a run."""

    recipe: Recipe


class GetRecipe(Request[FrozenRecipe], service="registry", name="get_recipe"):
    """The frozen inputs of a run."""

    run_id: RunId


class ListTransitions(Request[Transitions], service="registry", name="list_transitions"):
    """How a run's status changed."""

    run_id: RunId


class CancelRun(Request[RunView], service="registry", name="cancel_run", command=True):
    """Stop a run for good; a run that has ended is a Conflict."""

    run_id: RunId
    reason: str | None = None


class PauseRun(Request[RunView], service="registry", name="pause_run", command=True):
    """Save a running run's state and release its resources."""

    run_id: RunId


class ResumeRun(Request[RunView], service="registry", name="resume_run", command=True):
    """Queue a paused run again, from its last checkpoint."""

    run_id: RunId
