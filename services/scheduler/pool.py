"""The pool's loop: places waiting work, and makes the processes of this node match its leases.

Guaranteed: a process is started only after its lease is committed, and a lease whose process was never started gets
one at the next round; a lease's devices are free only when its process is gone; a lease whose attempt died or fell
silent is lost at once, and nothing is started on its devices before the old process is dead.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import ResourceConfig, ResumePoint
from libs.common.contracts.work import LeaseGranted
from libs.common.identifiers import LeaseId, NodeId, WorkId, WorkspaceId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.scheduler.backends import Backend, ProcessRef, Start
from services.scheduler.devices import devices_of_this_machine
from services.scheduler.domain import NODE_SILENCE, is_silent
from services.scheduler.handlers import apply
from services.scheduler.placement import Node, Placement, Waiting, place
from services.scheduler.store import SchedulerStore
from services.scheduler.tables import LeaseRow, NodeRow, QueueRow

ROUND_S = 0.3
SEEN_EVERY = timedelta(seconds=5)
END_GRACE = timedelta(seconds=12)
"""From the end of an attempt (or its work) until SIGTERM: it hears `cancel` by its heartbeat, or says goodbye."""
TERM_GRACE = timedelta(seconds=5)
"""From SIGTERM until SIGKILL."""
LAST_WORDS = timedelta(seconds=3)
"""From the end of a process until its lease is lost: its last words may still travel."""

_log = structlog.get_logger(__name__)
Uow = UnitOfWork[SchedulerStore]


class Pool:
    """This node, and the queue of all."""

    def __init__(self, platform: Platform, units: UnitsOfWork[SchedulerStore], backend: Backend) -> None:
        self._platform = platform
        self._units = units
        self._backend = backend
        self._name = platform.settings.node_name or socket.gethostname()
        self.node_id = NodeId(f"node_{self._name}")
        self._mine: set[str] = set()
        self._died: dict[str, datetime] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something changed: do not wait for the next round."""
        self._wake.set()

    async def run(self) -> None:
        """Join the pool and serve it until cancelled; then end what this node started."""
        devices = await asyncio.to_thread(devices_of_this_machine, self._platform.settings)
        await self._join(devices)
        try:
            while True:
                await self._round()
                with suppress(TimeoutError):
                    # Not wait_for: on Python 3.11 it loses a cancellation that comes with the event.
                    async with asyncio.timeout(ROUND_S):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            await self._end_children()

    async def _round(self) -> None:
        async with self._units.begin() as uow:
            await self._be_seen(uow)
            await self._lose_silent_nodes(uow)
            await self._place(uow)
        async with self._units.read() as store:
            leases = await store.active_leases(self.node_id)
        for lease in leases:
            await self._tend(lease)

    async def _join(self, devices: list[str]) -> None:
        async with self._units.begin() as uow:
            node = await uow.store.node(self.node_id)
            if node is None:
                node = NodeRow(id=self.node_id, name=self._name)
                node.devices, node.state, node.last_seen = devices, "ready", uow.now()
                await uow.store.add(node)
            node.devices, node.state, node.last_seen = devices, "ready", uow.now()
        _log.info("joined the pool", node=self._name, devices=devices)

    async def _be_seen(self, uow: Uow) -> None:
        node = await uow.store.node(self.node_id)
        if node is not None and (node.state != "ready" or uow.now() - node.last_seen >= SEEN_EVERY):
            node.state, node.last_seen = "ready", uow.now()

    async def _lose_silent_nodes(self, uow: Uow) -> None:
        for node in await uow.store.mark_lost_nodes(uow.now() - NODE_SILENCE):
            _log.warning("a node fell silent", node=node.name)
            for lease in await uow.store.active_leases(NodeId(node.id)):
                apply(
                    lease, "gone" if lease.state == "releasing" else "lose", uow, f"node {node.name} is lost"
                )

    async def _place(self, uow: Uow) -> None:
        await uow.store.lock_pool()
        queue = {row.work_id: row for row in await uow.store.waiting()}
        if not queue:
            return
        leases = await uow.store.active_leases()
        busy = {lease.work_id for lease in leases}
        waiting = [_waiting(row) for row in queue.values() if row.work_id not in busy]
        held: Counter[str] = Counter()
        for lease in leases:
            held[lease.workspace_id] += len(lease.devices)
        nodes = [_free(node, leases) for node in await uow.store.nodes() if node.state == "ready"]
        decision = place(waiting, nodes, held)
        for placement in decision.placements:
            await self._grant(queue[placement.work_id], placement, uow)
        still = [(work_id, "its last attempt is ending") for work_id in queue if work_id in busy]
        await uow.store.note_reasons([*decision.reasons, *still])

    async def _grant(self, row: QueueRow, placement: Placement, uow: Uow) -> None:
        work_id = WorkId(row.work_id)
        lease = LeaseRow(
            id=uow.new_id("lease"),
            work_id=work_id,
            work_kind=row.work_kind,
            workspace_id=row.workspace_id,
            epoch=await uow.store.newest_epoch(work_id) + 1,
            node_id=placement.node_id,
            devices=list(placement.devices),
            state="held",
            granted_at=uow.now(),
        )
        await uow.store.add(lease)
        await uow.store.dequeue(work_id)
        uow.emit(
            LeaseGranted(
                workspace_id=WorkspaceId(row.workspace_id),
                lease_id=LeaseId(lease.id),
                work_id=work_id,
                work_kind="run" if row.work_kind == "run" else "job",
                epoch=lease.epoch,
                node_id=NodeId(placement.node_id),
                devices=list(placement.devices),
                order=BlobRef.model_validate(row.order),
                resume_from=ResumePoint.model_validate(row.resume_from) if row.resume_from else None,
            )
        )

    async def _tend(self, lease: LeaseRow) -> None:
        """Bring one lease of this node a step further."""
        process = ProcessRef(lease.pid, lease.pid_started or "") if lease.pid is not None else None
        if process is not None and lease.id not in self._mine and self._backend.alive(process):
            # Started by an earlier life of this scheduler: its devices are taken, its epoch is over.
            self._backend.kill(process)
            return
        if lease.state == "releasing":
            await self._release(lease, process)
        elif process is None:
            await self._start(lease)
        elif not self._backend.alive(process):
            await self._bury(lease, process)
        elif self._is_silent(lease):
            self._backend.kill(process)
            await self._move(lease, "lose", "its attempt fell silent")

    async def _start(self, lease: LeaseRow) -> None:
        address = await asyncio.to_thread(self._trainer_url)
        if address is None:
            return
        start = Start(lease.id, lease.work_id, lease.epoch, tuple(lease.devices))
        try:
            process = self._backend.start(start, address)
        except OSError as error:
            await self._move(lease, "lose", f"its attempt could not be started: {error}")
            return
        self._mine.add(lease.id)
        async with self._units.begin() as uow:
            await uow.store.note_process(lease.id, process.pid, process.started)
        _log.info("attempt started", work=lease.work_id, epoch=lease.epoch, pid=process.pid)

    async def _bury(self, lease: LeaseRow, process: ProcessRef) -> None:
        now = self._platform.clock.now()
        died = self._died.setdefault(lease.id, now)
        foreign = lease.id not in self._mine
        if foreign or now - died >= LAST_WORDS:
            how = "the scheduler was started anew" if foreign else self._backend.exit_text(process)
            await self._move(lease, "lose", how)

    async def _release(self, lease: LeaseRow, process: ProcessRef | None) -> None:
        if process is None or not self._backend.alive(process):
            await self._move(lease, "gone")
            return
        since = self._platform.clock.now() - (lease.releasing_since or lease.granted_at)
        if since >= END_GRACE + TERM_GRACE:
            self._backend.kill(process)
        elif since >= END_GRACE:
            self._backend.terminate(process)

    async def _move(self, lease: LeaseRow, event: str, reason: str = "") -> None:
        async with self._units.begin() as uow:
            row = await uow.store.lease(lease.id)
            if row is not None:
                apply(row, "gone" if event == "gone" else "lose", uow, reason)
        self._mine.discard(lease.id)
        self._died.pop(lease.id, None)
        self.wake()

    def _is_silent(self, lease: LeaseRow) -> bool:
        ttl = timedelta(seconds=self._platform.settings.lease_ttl_s)
        return is_silent(lease.granted_at, lease.heartbeat_at, self._platform.clock.now(), ttl)

    def _trainer_url(self) -> str | None:
        """Where attempts reach the trainer service: as set, else as it wrote down when it began to listen."""
        if self._platform.settings.trainer_url:
            return self._platform.settings.trainer_url
        file = self._platform.settings.data_dir.absolute() / "run" / "trainer.url"
        return file.read_text().strip() if file.exists() else None

    async def _end_children(self) -> None:
        """The platform stops: end what this node started; the next start finds the leases and gives them back."""
        async with self._units.read() as store:
            leases = [lease for lease in await store.active_leases(self.node_id) if lease.id in self._mine]
        processes = [ProcessRef(lease.pid, lease.pid_started or "") for lease in leases if lease.pid]
        for process in processes:
            self._backend.terminate(process)
        deadline = asyncio.get_running_loop().time() + TERM_GRACE.total_seconds()
        # A process tells nobody that it ends: it is looked at.
        while any(map(self._backend.alive, processes)) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for process in processes:
            self._backend.kill(process)


def _waiting(row: QueueRow) -> Waiting:
    return Waiting(row.work_id, row.workspace_id, ResourceConfig.model_validate(row.resources), row.queued_at)


def _free(node: NodeRow, leases: Sequence[LeaseRow]) -> Node:
    taken = {device for lease in leases if lease.node_id == node.id for device in lease.devices}
    return Node(node.id, tuple(node.devices), tuple(d for d in node.devices if d not in taken))
