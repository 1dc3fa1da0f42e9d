"""Leases and attempts: the facts between registry, scheduler and trainer, and the questions about the pool.

Owner of leases and epochs: scheduler. Owner of attempts: trainer. Everything an attempt says carries its epoch, and an
older epoch is refused by whoever hears it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Contract, Fact
from libs.common.contracts.recipes import ResourceConfig, ResumePoint
from libs.common.contracts.requests import Done, Reply, Request
from libs.common.identifiers import CheckpointId, JobId, LeaseId, NodeId, RunId, WorkId

WorkKind = Literal["run", "job"]


class LeaseGranted(Fact, key="lease.granted", subject="work_id"):
    """The work has its resources: an attempt with this epoch is being started on the node."""

    lease_id: LeaseId
    work_id: WorkId
    work_kind: WorkKind
    epoch: int
    node_id: NodeId
    devices: list[str] = Field(description="cpu:0, cuda:3, …")
    order: BlobRef
    resume_from: ResumePoint | None = None


class LeaseReleased(Fact, key="lease.released", subject="work_id"):
    """The attempt ended and its resources are free."""

    lease_id: LeaseId
    work_id: WorkId
    work_kind: WorkKind
    epoch: int


class LeaseLost(Fact, key="lease.lost", subject="work_id"):
    """The attempt is dead without having said so (process gone, no heartbeat, node lost): take it back."""

    lease_id: LeaseId
    work_id: WorkId
    work_kind: WorkKind
    epoch: int
    reason: str


class AttemptStarted(Fact, key="attempt.started", subject="work_id"):
    """The attempt's process is up and its policy engine (training only) answers at `engine_url`."""

    work_id: WorkId
    work_kind: WorkKind
    epoch: int
    engine_url: str | None = None
    total_steps: int = 0
    from_step: int = 0


class AttemptStepped(Fact, key="attempt.stepped", subject="work_id"):
    """One optimiser step (or one validation, `phase`) is done; `metrics` by metric key."""

    work_id: WorkId
    epoch: int
    step: int
    total_steps: int
    phase: Literal["train", "validation"] = "train"
    metrics: dict[str, float]
    at: datetime


class AttemptEnded(Fact, key="attempt.ended", subject="work_id"):
    """The attempt said how it ended. `artifact`: manifest of what a job made. `checkpoint_id`: the last one saved."""

    work_id: WorkId
    work_kind: WorkKind
    epoch: int
    outcome: Literal["completed", "failed", "cancelled", "paused"]
    step: int = 0
    error: str | None = None
    artifact: BlobRef | None = None


class CheckpointSaved(Fact, key="checkpoint.saved", subject="run_id"):
    """A checkpoint's manifest is in the blob store."""

    checkpoint_id: CheckpointId
    run_id: RunId
    epoch: int
    step: int
    manifest: BlobRef
    size: int
    metrics: dict[str, float]


class JobQueued(Fact, key="job.queued", subject="job_id"):
    """A merge or an export wants to run."""

    job_id: JobId
    kind: Literal["merge", "export"]
    order: BlobRef
    resources: ResourceConfig


class JobCancelled(Fact, key="job.cancelled", subject="job_id"):
    """The job is no longer wanted."""

    job_id: JobId


class NodeView(Contract):
    """One machine of the pool."""

    id: NodeId
    name: str
    devices: list[str]
    free: list[str]
    state: Literal["ready", "lost"]
    last_seen: datetime


class LeaseView(Contract):
    """Resources held by one attempt."""

    id: LeaseId
    work_id: WorkId
    work_kind: WorkKind
    epoch: int
    node_id: NodeId
    devices: list[str]
    state: Literal["held", "releasing", "released", "lost"]
    granted_at: datetime
    heartbeat_at: datetime


class QueueEntry(Contract):
    """Waiting work: `position` from 1, and why it waits."""

    work_id: WorkId
    work_kind: WorkKind
    position: int
    reason: str
    queued_at: datetime


class Nodes(Reply):
    """The pool as it stands."""

    nodes: list[NodeView]
    leases: list[LeaseView]
    queue: list[QueueEntry]


class ListNodes(Request[Nodes], service="scheduler", name="list_nodes"):
    """The pool; leases and queue entries only of the caller's workspace."""


class QueuePosition(Reply):
    """Where a piece of work stands; `entry` is None when it does not wait."""

    entry: QueueEntry | None


class GetQueuePosition(Request[QueuePosition], service="scheduler", name="get_queue_position"):
    """Where one piece of work stands in the queue."""

    work_id: WorkId


class Heartbeat(Request[Done], service="scheduler", name="heartbeat", command=True):
    """The trainer service passes on that an attempt is alive.

    Raises:
        Conflict: the lease of this epoch is no longer held; the attempt must stop.
    """

    work_id: WorkId
    epoch: int
