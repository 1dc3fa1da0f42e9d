"""Which waiting work gets which devices: a pure function over the queue and the pool.

Order: priority, then the workspace that holds the fewest devices, then who waited longest. Work runs on one node. The
first work that must wait reserves the devices of its kind on the node where it will fit soonest, so that small work
never starves large work: what is free on a reserved node only grows until the work fits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from libs.common.contracts.recipes import ResourceConfig

GPU = "cuda"
CPU = "cpu"


@dataclass(frozen=True)
class Waiting:
    """Work in the queue."""

    work_id: str
    workspace_id: str
    resources: ResourceConfig
    queued_at: datetime


@dataclass(frozen=True)
class Node:
    """A node's devices (`cpu:0`, `cuda:1`), all of them and those that nobody holds."""

    id: str
    devices: tuple[str, ...]
    free: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Work and the devices that it gets."""

    work_id: str
    node_id: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """Placements in order, and of everything that waits its place in the queue (from 1) and the reason."""

    placements: tuple[Placement, ...]
    reasons: tuple[tuple[str, str], ...]


def place(waiting: Sequence[Waiting], nodes: Sequence[Node], held: Counter[str]) -> Decision:
    """Decide. `held`: devices that each workspace holds already."""
    free = {node.id: list(node.free) for node in nodes}
    held = held.copy()
    reserved: set[tuple[str, str]] = set()
    placements, reasons = list[Placement](), list[tuple[str, str]]()
    left = deque(sorted(waiting, key=lambda work: _order(work, held)))
    while left:
        work = left.popleft()
        kind, count = _needs(work.resources)
        chosen = _choose(nodes, free, reserved, kind, count)
        if chosen is None:
            reasons.append((work.work_id, _reason(nodes, free, kind, count)))
            reserved |= _reservation(nodes, free, kind, count)
            continue
        devices = tuple(device for device in free[chosen] if _is(device, kind))[:count]
        free[chosen] = [device for device in free[chosen] if device not in devices]
        placements.append(Placement(work.work_id, chosen, devices))
        # What a workspace holds decides the order of the rest.
        held[work.workspace_id] += count
        left = deque(sorted(left, key=lambda work: _order(work, held)))
    return Decision(tuple(placements), tuple(reasons))


def _order(work: Waiting, held: Counter[str]) -> tuple[int, int, datetime, str]:
    return (-work.resources.priority, held[work.workspace_id], work.queued_at, work.work_id)


def _needs(resources: ResourceConfig) -> tuple[str, int]:
    return (GPU, resources.gpus) if resources.gpus else (CPU, resources.slots)


def _is(device: str, kind: str) -> bool:
    return device.startswith(f"{kind}:")


def _count(devices: Sequence[str], kind: str) -> int:
    return sum(_is(device, kind) for device in devices)


def _choose(
    nodes: Sequence[Node],
    free: dict[str, list[str]],
    reserved: set[tuple[str, str]],
    kind: str,
    count: int,
) -> str | None:
    """The fullest node that still fits the work, so that large holes stay for large work."""
    fitting = [n for n in nodes if (n.id, kind) not in reserved and _count(free[n.id], kind) >= count]
    return min(fitting, key=lambda n: (_count(free[n.id], kind), n.id)).id if fitting else None


def _reservation(
    nodes: Sequence[Node], free: dict[str, list[str]], kind: str, count: int
) -> set[tuple[str, str]]:
    """The node on which waiting work will fit soonest; none when it fits on no node at all."""
    able = [node for node in nodes if _count(node.devices, kind) >= count]
    return {(max(able, key=lambda n: (_count(free[n.id], kind), n.id)).id, kind)} if able else set()


def _reason(nodes: Sequence[Node], free: dict[str, list[str]], kind: str, count: int) -> str:
    word = "GPUs" if kind == GPU else "CPU slots"
    largest = max((_count(node.devices, kind) for node in nodes), default=0)
    if largest < count:
        return f"needs {count} {word} on one node; the largest node has {largest}"
    most = max(_count(free[node.id], kind) for node in nodes)
    if most >= count:
        return f"waits behind work whose turn is earlier and that needs the same {word}"
    return f"needs {count} {word} on one node; {most} are free"
