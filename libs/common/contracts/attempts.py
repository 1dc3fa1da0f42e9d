"""What an attempt's process and the trainer service say to each other over HTTP (docs/architecture.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from libs.common.contracts.blobs import BlobRef, Parcel
from libs.common.contracts.envelope import Contract
from libs.common.contracts.recipes import ResumePoint, SamplingConfig, WorkOrder
from libs.common.contracts.rollouts import GroupSpec, Phase
from libs.common.contracts.trajectories import Group
from libs.common.identifiers import BatchId, CheckpointId


class Hello(Contract):
    """Answer to an attempt's first call: what to do, and from where."""

    order: WorkOrder
    resume_from: ResumePoint | None = None
    heartbeat_s: float = Field(default=2.0, description="how often to send heartbeats, seconds")
    lease_ttl_s: float = Field(
        default=30.0, description="after so many seconds without an answer the attempt must stop"
    )


class Started(Contract):
    """The attempt is up."""

    engine_url: str | None = None
    total_steps: int = 0
    from_step: int = 0


class Directive(Contract):
    """What the attempt is to do now."""

    directive: Literal["go", "pause", "cancel"]


class BatchOrder(Contract):
    """Rollouts that an attempt wants: `n_samples` of every row of `groups`."""

    batch_id: BatchId
    step: int
    phase: Phase
    groups: list[GroupSpec]
    n_samples: int
    sampling: SamplingConfig
    seed: int
    timeout_s: float


class CompletedGroups(Contract):
    """Groups completed since the position that was asked for; `position` is where to go on."""

    position: int
    groups: list[Parcel[Group]]
    done: bool = Field(description="every group of the batch has been answered")


class StepReport(Contract):
    """Metrics of one step, or of a validation at a step."""

    step: int
    total_steps: int
    phase: Phase = "train"
    metrics: dict[str, float]


class CheckpointReport(Contract):
    """A checkpoint whose manifest is in the blob store."""

    checkpoint_id: CheckpointId
    step: int
    manifest: BlobRef
    size: int
    metrics: dict[str, float]


class Ended(Contract):
    """How the attempt ended. `error` is for the user: what, where, what to do."""

    outcome: Literal["completed", "failed", "cancelled", "paused"]
    step: int = 0
    error: str | None = None
    artifact: BlobRef | None = None
