"""What the scheduler hears and answers: load, decide, save, emit. Placing is the pool's loop (`pool.py`)."""

from __future__ import annotations

from libs.common.contracts.requests import Caller, Done
from libs.common.contracts.runs import RunCancelled, RunFailed, RunQueued
from libs.common.contracts.work import (
    AttemptEnded,
    GetQueuePosition,
    Heartbeat,
    JobCancelled,
    JobQueued,
    LeaseLost,
    LeaseReleased,
    LeaseView,
    ListNodes,
    Nodes,
    NodeView,
    QueueEntry,
    QueuePosition,
    WorkKind,
)
from libs.common.errors import Conflict
from libs.common.identifiers import LeaseId, NodeId, WorkId, WorkspaceId
from libs.common.unit_of_work import UnitOfWork
from services.scheduler.domain import LeaseEvent, move
from services.scheduler.store import SchedulerStore
from services.scheduler.tables import LeaseRow, NodeRow, QueueRow

Uow = UnitOfWork[SchedulerStore]


async def on_run_queued(fact: RunQueued, uow: Uow) -> None:
    """A run waits for resources."""
    await _enqueue(fact, WorkId(fact.run_id), "run", uow)


async def on_job_queued(fact: JobQueued, uow: Uow) -> None:
    """A merge or an export waits for resources."""
    await _enqueue(fact, WorkId(fact.job_id), "job", uow)


async def on_run_ended_by_its_owner(fact: RunCancelled | RunFailed, uow: Uow) -> None:
    """The run is over, whatever its attempt does: it waits no more and its resources come back."""
    await _withdraw(WorkId(fact.run_id), uow)


async def on_job_cancelled(fact: JobCancelled, uow: Uow) -> None:
    """The job is no longer wanted."""
    await _withdraw(WorkId(fact.job_id), uow)


async def on_attempt_ended(fact: AttemptEnded, uow: Uow) -> None:
    """The attempt said how it ended: its resources come back once its process is gone."""
    lease = await uow.store.lease_of_epoch(fact.work_id, fact.epoch)
    if lease is not None:
        apply(lease, "end", uow)


async def heartbeat(request: Heartbeat, caller: Caller, uow: Uow) -> Done:
    """An attempt is alive."""
    lease = await uow.store.lease_of_epoch(request.work_id, request.epoch)
    if lease is None or lease.state not in ("held", "releasing"):
        raise Conflict(f"the lease of {request.work_id} in epoch {request.epoch} is no longer held: stop")
    lease.heartbeat_at = uow.now()
    return Done()


async def list_nodes(request: ListNodes, caller: Caller, uow: Uow) -> Nodes:
    """The pool; leases and queue of the caller's workspace, of all for the operator."""
    scope = None if caller.kind == "root" else caller.workspace()
    taken: dict[str, set[str]] = {}
    for lease in await uow.store.active_leases():
        taken.setdefault(lease.node_id, set()).update(lease.devices)
    return Nodes(
        nodes=[_node_view(node, taken.get(node.id, set())) for node in await uow.store.nodes()],
        leases=[_lease_view(lease) for lease in await uow.store.leases_of_workspace(scope)],
        queue=[_entry(row) for row in await uow.store.queue_of_workspace(scope)],
    )


async def get_queue_position(request: GetQueuePosition, caller: Caller, uow: Uow) -> QueuePosition:
    """Where a work of the caller's workspace stands."""
    row = await uow.store.entry(request.work_id)
    if row is None or (caller.kind == "key" and row.workspace_id != caller.workspace()):
        return QueuePosition(entry=None)
    return QueuePosition(entry=_entry(row))


def apply(lease: LeaseRow, event: LeaseEvent, uow: Uow, reason: str = "") -> None:
    """Move a lease and state the fact that follows; no move, no fact."""
    state = move(lease.state, event)  # pyright: ignore[reportArgumentType] - the table's words alone are stored
    if state == lease.state:
        return
    lease.state = state
    about = {
        "workspace_id": WorkspaceId(lease.workspace_id),
        "lease_id": LeaseId(lease.id),
        "work_id": WorkId(lease.work_id),
        "work_kind": lease.work_kind,
        "epoch": lease.epoch,
    }
    if state == "releasing":
        lease.releasing_since = uow.now()
    elif state == "released":
        uow.emit(LeaseReleased.model_validate(about))
    elif state == "lost":
        uow.emit(LeaseLost.model_validate(about | {"reason": reason}))


async def _enqueue(fact: RunQueued | JobQueued, work_id: WorkId, kind: WorkKind, uow: Uow) -> None:
    await uow.store.dequeue(work_id)
    resume = fact.resume_from if isinstance(fact, RunQueued) else None
    await uow.store.add(
        QueueRow(
            work_id=work_id,
            work_kind=kind,
            workspace_id=fact.workspace_id,
            order=fact.order.model_dump(mode="json"),
            resources=fact.resources.model_dump(mode="json"),
            resume_from=resume.model_dump(mode="json") if resume else None,
            queued_at=uow.now(),
            reason="not placed yet",
        )
    )


async def _withdraw(work_id: WorkId, uow: Uow) -> None:
    await uow.store.dequeue(work_id)
    lease = await uow.store.active_lease(work_id)
    if lease is not None:
        apply(lease, "end", uow)


def _node_view(node: NodeRow, taken: set[str]) -> NodeView:
    return NodeView(
        id=NodeId(node.id),
        name=node.name,
        devices=node.devices,
        free=[device for device in node.devices if device not in taken],
        state="ready" if node.state == "ready" else "lost",
        last_seen=node.last_seen,
    )


def _lease_view(lease: LeaseRow) -> LeaseView:
    return LeaseView.model_validate(
        {
            "id": lease.id,
            "work_id": lease.work_id,
            "work_kind": lease.work_kind,
            "epoch": lease.epoch,
            "node_id": lease.node_id,
            "devices": lease.devices,
            "state": lease.state,
            "granted_at": lease.granted_at,
            "heartbeat_at": lease.heartbeat_at or lease.granted_at,
        }
    )


def _entry(row: QueueRow) -> QueueEntry:
    return QueueEntry.model_validate(
        {
            "work_id": row.work_id,
            "work_kind": row.work_kind,
            "position": max(row.position, 1),
            "reason": row.reason,
            "queued_at": row.queued_at,
        }
    )
