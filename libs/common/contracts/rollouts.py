"""Batches, groups, rollouts and tool sessions: the facts and questions between trainer, rollout broker and rewards."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from libs.common.contracts.blobs import BlobRef, Parcel
from libs.common.contracts.envelope import Contract, Fact
from libs.common.contracts.recipes import CodeSnapshot, RewardRef, SamplingConfig, ScoringConfig
from libs.common.contracts.requests import Done, Page, PageRequest, Reply, Request
from libs.common.contracts.trajectories import Group, RewardComponent, Trajectory
from libs.common.identifiers import BatchId, GroupId, RolloutId, RunId

Phase = Literal["train", "validation"]


class GroupSpec(Contract):
    """One group to sample: a row of the training (or validation) dataset."""

    group_id: GroupId
    row_index: int


class BatchRequested(Fact, key="batch.requested", subject="run_id"):
    """An attempt wants `n_samples` rollouts of each row, scored. `recipe` refers to a Recipe in JSON."""

    batch_id: BatchId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    recipe: BlobRef
    engine_url: str
    groups: list[GroupSpec]
    n_samples: int
    sampling: SamplingConfig
    seed: int = Field(
        description="seed of the batch; a sample's own seed follows from it, its row and its index"
    )
    deadline: datetime


class GroupSampled(Fact, key="group.sampled", subject="group_id"):
    """Every rollout of a group has ended; the group waits for its rewards."""

    group_id: GroupId
    batch_id: BatchId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    group: Parcel[Group]
    code: CodeSnapshot
    rewards: list[RewardRef]
    scoring: ScoringConfig


class SampleScore(Contract):
    """The rewards service's verdict on one trajectory; `reward` is the weighted sum, None if a component is missing."""

    rollout_id: RolloutId
    reward: float | None
    components: list[RewardComponent]


class GroupScored(Fact, key="group.scored", subject="group_id"):
    """Verdicts on every trajectory of a group, in the group's order."""

    group_id: GroupId
    batch_id: BatchId
    run_id: RunId
    epoch: int
    scores: list[SampleScore]


class GroupCompleted(Fact, key="group.completed", subject="group_id"):
    """A group with its rewards, ready to train on."""

    group_id: GroupId
    batch_id: BatchId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    group: Parcel[Group]


class RolloutCompleted(Fact, key="rollout.completed", subject="rollout_id"):
    """One rollout ended and was scored. `reward` None: it has none, `error` says why."""

    rollout_id: RolloutId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    row_index: int
    sample_index: int
    reward: float | None
    finish_reason: str
    turns: int
    tool_calls: int
    tokens: int
    duration_ms: float
    error: str | None = None


class RolloutFailed(Fact, key="rollout.failed", subject="rollout_id"):
    """One rollout erred or ran out of time. It has no reward; it may have been replaced."""

    rollout_id: RolloutId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    row_index: int
    sample_index: int
    error: str


class RolloutView(Contract):
    """A rollout in a list."""

    id: RolloutId
    run_id: RunId
    epoch: int
    step: int
    phase: Phase
    row_index: int
    sample_index: int
    status: Literal["pending", "running", "sampled", "completed", "failed"]
    reward: float | None
    finish_reason: str | None
    turns: int
    tool_calls: int
    tokens: int
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class RolloutPage(Page):
    """Rollouts of a run, newest step first."""

    items: list[RolloutView]


class RolloutDetail(Reply):
    """A rollout with what was said and every token of it."""

    rollout: RolloutView
    trajectory: Trajectory | None


class ListRollouts(PageRequest, Request[RolloutPage], service="rollout", name="list_rollouts"):
    """Rollouts of a run of the caller's workspace."""

    run_id: RunId
    step: int | None = None
    phase: Phase | None = None
    status: str | None = None
    with_tool_calls: bool = False


class GetRollout(Request[RolloutDetail], service="rollout", name="get_rollout"):
    """One rollout."""

    rollout_id: RolloutId


class ToolSchema(Contract):
    """A tool as the chat template renders it: OpenAI's function form."""

    type: Literal["function"] = "function"
    function: dict[str, Any] = Field(description="name, description, parameters (JSON schema)")


class ToolSessionOpened(Reply):
    """An isolated session of the project's tools. Calls go to `address`: the replica that holds the session."""

    session_id: str
    address: str
    tools: list[ToolSchema]


class OpenToolSession(Request[ToolSessionOpened], service="rewards", name="open_tool_session"):
    """Start the tools of a synced commit for one rollout.

    Raises:
        Invalid: the tool server cannot be loaded; the message is its author's error.
    """

    run_id: RunId
    rollout_id: RolloutId
    code: CodeSnapshot
    tools: list[str] | Literal["all"] = "all"
    timeout_s: float = 30


class ToolText(Reply):
    """What a tool call says to the model. `failed` when it is an error text."""

    text: str
    failed: bool = False
    duration_ms: float = 0.0


class CallTool(Request[ToolText], service="rewards", name="call_tool"):
    """Call a tool of an open session; `arguments` as the model wrote them (JSON text or an object)."""

    session_id: str
    name: str
    arguments: str | dict[str, Any]
    timeout_s: float = 30


class CloseToolSession(Request[Done], service="rewards", name="close_tool_session"):
    """End a session; closing a closed one is no error."""

    session_id: str
