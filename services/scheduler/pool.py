"""The pool's loop: this node joins it, says that it lives, and places what waits.

Guaranteed: replicas decide one after the other, so no device is given twice; a node that was not seen for a while is
lost with its leases, unless it was this scheduler that could not see.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from urllib.parse import quote

import structlog

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import ResourceConfig, ResumePoint
from libs.common.contracts.work import LeaseGranted
from libs.common.database import is_transient
from libs.common.file_locks import hold
from libs.common.identifiers import LeaseId, NodeId, WorkId, WorkspaceId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.scheduler.backends import Backend
from services.scheduler.devices import devices_of_this_machine
from services.scheduler.domain import FORGET_NODE, NODE_SILENCE
from services.scheduler.handlers import apply
from services.scheduler.placement import Node, Placement, Waiting, place
from services.scheduler.store import SchedulerStore
from services.scheduler.tables import LeaseRow, NodeRow, QueueRow
from services.scheduler.tending import Attempts

ROUND_S = 0.3
STOOD_STILL = timedelta(seconds=5)
"""A gap between two rounds that says: this process was stopped, or its machine slept."""
SEEN_EVERY = timedelta(seconds=5)

_log = structlog.get_logger(__name__)
Uow = UnitOfWork[SchedulerStore]


class NodeInUse(Exception):
    """Another scheduler serves the node."""


class Pool:
    """This node, and the queue of all."""

    def __init__(self, platform: Platform, units: UnitsOfWork[SchedulerStore], backend: Backend) -> None:
        self._platform = platform
        self._units = units
        self._attempts = Attempts(platform, units, backend)
        self._name = platform.settings.node_name or socket.gethostname()
        self.node_id = NodeId(f"node_{self._name}")
        self._wake = asyncio.Event()
        self._hearing_since = self._last_round = platform.clock.now()

    def wake(self) -> None:
        """Something changed: do not wait for the next round."""
        self._wake.set()

    async def run(self) -> None:
        """Join the pool and serve it until cancelled; then end what this node started.

        Raises:
            NodeInUse: another scheduler on this data folder goes by the same name.
        """
        with self._alone():
            await self.join(await asyncio.to_thread(devices_of_this_machine, self._platform.settings))
            try:
                while True:
                    await self._round_or_outage()
                    with suppress(TimeoutError):
                        # Not wait_for: on Python 3.11 it loses a cancellation that comes with the event.
                        async with asyncio.timeout(ROUND_S):
                            await self._wake.wait()
                    self._wake.clear()
            finally:
                await self._attempts.end_all()

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Two schedulers of one name would each take the other's attempts for those of a life before."""
        folder = self._platform.settings.data_dir.absolute() / "run"
        with hold(folder / f"node-{quote(self._name, safe='')}.lock") as held:
            if not held:
                raise NodeInUse(
                    f"another scheduler serves node {self._name} from {folder.parent}; stop it or set another"
                    " OSMOSIS_NODE_NAME"
                )
            yield

    async def _round_or_outage(self) -> None:
        try:
            await self.round()
        except Exception as error:
            if not is_transient(error):
                raise
            _log.warning("the pool could not be served; trying again", error=repr(error))
            self._hearing_since = self._platform.clock.now()

    async def round(self) -> None:
        """One look at everything: nodes, queue, and this node's attempts."""
        now = self._platform.clock.now()
        if not self._platform.bus.healthy() or now - self._last_round > STOOD_STILL:
            self._hearing_since = now
        self._last_round = now
        async with self._units.begin() as uow:
            await uow.store.lock_pool()
            await self._be_seen(uow)
            await self._lose_silent_nodes(uow)
            await self._place(uow)
        async with self._units.read() as store:
            leases = await store.active_leases(self.node_id)
        if await self._attempts.tend(leases, self._hearing_since):
            self.wake()

    async def join(self, devices: list[str]) -> None:
        """Tell the pool of this node and what it has."""
        async with self._units.begin() as uow:
            await uow.store.lock_pool()
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
        if uow.now() - self._hearing_since < NODE_SILENCE:
            return
        for node in await uow.store.mark_lost_nodes(uow.now() - NODE_SILENCE):
            _log.warning("a node fell silent", node=node.name)
            for lease in await uow.store.active_leases(NodeId(node.id), for_change=True):
                event = "gone" if lease.state == "releasing" else "lose"
                apply(lease, event, uow, f"node {node.name} is lost")
        await uow.store.forget_nodes(uow.now() - FORGET_NODE)

    async def _place(self, uow: Uow) -> None:
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
        if not await uow.store.dequeue(work_id):
            return  # withdrawn at this moment
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


def _waiting(row: QueueRow) -> Waiting:
    return Waiting(row.work_id, row.workspace_id, ResourceConfig.model_validate(row.resources), row.queued_at)


def _free(node: NodeRow, leases: Sequence[LeaseRow]) -> Node:
    taken = {device for lease in leases if lease.node_id == node.id for device in lease.devices}
    return Node(node.id, tuple(node.devices), tuple(d for d in node.devices if d not in taken))
