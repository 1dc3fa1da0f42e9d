"""Placement: no device twice, in order, and nobody starves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.contracts.recipes import ResourceConfig
from services.scheduler.placement import Node, Waiting, place

START = datetime(2026, 12, 1, tzinfo=UTC)


def work(
    name: str, *, gpus: int = 0, slots: int = 1, priority: int = 0, workspace: str = "ws", at: int = 0
) -> Waiting:
    return Waiting(
        name,
        workspace,
        ResourceConfig(gpus=gpus, slots=slots, priority=priority),
        START + timedelta(seconds=at),
    )


def node(name: str, *, gpus: int = 0, cpus: int = 0, taken: frozenset[str] = frozenset()) -> Node:
    devices = (*(f"cuda:{i}" for i in range(gpus)), *(f"cpu:{i}" for i in range(cpus)))
    return Node(name, devices, tuple(d for d in devices if d not in taken))


def placed(waiting: list[Waiting], nodes: list[Node], held: Counter[str] | None = None) -> list[str]:
    return [p.work_id for p in place(waiting, nodes, held or Counter()).placements]


@st.composite
def pools(draw: st.DrawFn) -> list[Node]:
    nodes: list[Node] = []
    for number in range(draw(st.integers(0, 4))):
        whole = node(f"n{number}", gpus=draw(st.integers(0, 8)), cpus=draw(st.integers(0, 4)))
        taken = draw(st.sets(st.sampled_from(whole.devices)) if whole.devices else st.just(set[str]()))
        nodes.append(replace(whole, free=tuple(d for d in whole.devices if d not in taken)))
    return nodes


@st.composite
def queues(draw: st.DrawFn) -> list[Waiting]:
    return [
        work(
            f"w{number}",
            gpus=draw(st.integers(0, 8)),
            slots=draw(st.integers(1, 4)),
            priority=draw(st.integers(-1, 1)),
            workspace=draw(st.sampled_from("abc")),
            at=draw(st.integers(0, 5)),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


@given(queues(), pools(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 5)))
def test_no_device_is_given_twice_and_everybody_gets_what_they_need(
    waiting: list[Waiting], nodes: list[Node], held: dict[str, int]
):
    decision = place(waiting, nodes, Counter(held))
    free = {(n.id, device) for n in nodes for device in n.free}
    given_out = [(p.node_id, device) for p in decision.placements for device in p.devices]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= free
    needs = {w.work_id: w.resources for w in waiting}
    for placement in decision.placements:
        resources = needs[placement.work_id]
        kind, count = ("cuda", resources.gpus) if resources.gpus else ("cpu", resources.slots)
        assert len(placement.devices) == count
        assert all(device.startswith(f"{kind}:") for device in placement.devices)
    said = [p.work_id for p in decision.placements] + [work_id for work_id, _ in decision.reasons]
    assert sorted(said) == sorted(needs), "all work is placed, or is told why not"


@given(queues(), pools())
def test_the_same_queue_and_pool_give_the_same_decision_in_any_order(
    waiting: list[Waiting], nodes: list[Node]
):
    once = place(waiting, nodes, Counter())
    assert place(waiting[::-1], nodes[::-1], Counter()) == once


@given(queues(), pools())
def test_work_of_lower_priority_changes_nothing_for_the_others(waiting: list[Waiting], nodes: list[Node]):
    upper = [w for w in waiting if w.resources.priority > -1]
    decision, alone = place(waiting, nodes, Counter()), place(upper, nodes, Counter())
    names = {w.work_id for w in upper}
    assert [p for p in decision.placements if p.work_id in names] == list(alone.placements)


def test_priority_comes_before_fairness_and_fairness_before_waiting():
    one = [node("n", cpus=1)]
    waiting = [
        work("old", workspace="a", at=0),
        work("fair", workspace="b", at=5),
        work("urgent", workspace="a", at=9, priority=1),
    ]
    assert placed(waiting, one, Counter(a=3)) == ["urgent"]
    assert placed(waiting[:2], one, Counter(a=3)) == ["fair"]
    assert placed(waiting[:2], one) == ["old"]


def test_devices_given_in_this_round_count_for_fairness():
    waiting = [
        work("a1", workspace="a", at=0),
        work("a2", workspace="a", at=1),
        work("b1", workspace="b", at=2),
    ]
    assert placed(waiting, [node("n", cpus=2)]) == ["a1", "b1"]


def test_small_work_goes_where_the_hole_is_smallest():
    nodes = [node("wide", gpus=8), node("narrow", gpus=8, taken=frozenset(f"cuda:{i}" for i in range(6)))]
    (placement,) = place([work("w", gpus=2)], nodes, Counter()).placements
    assert (placement.node_id, placement.devices) == ("narrow", ("cuda:6", "cuda:7"))


def test_large_work_that_waits_keeps_its_node_for_itself():
    nodes = [node("n", gpus=4, taken=frozenset({"cuda:0"}))]
    decision = place([work("large", gpus=4, at=0), work("small", gpus=1, at=1)], nodes, Counter())
    assert decision.placements == ()
    reasons = dict(decision.reasons)
    assert reasons["large"] == "needs 4 GPUs on one node; 3 are free"
    assert "turn is earlier" in reasons["small"]


def test_a_wait_for_gpus_holds_back_no_cpu_work():
    nodes = [node("n", gpus=4, cpus=2, taken=frozenset({"cuda:0"}))]
    assert placed([work("large", gpus=4, at=0), work("merge", at=1)], nodes) == ["merge"]


def test_work_that_fits_nowhere_is_told_so_and_holds_back_nobody():
    decision = place(
        [work("huge", gpus=16, at=0), work("small", gpus=1, at=1)], [node("n", gpus=8)], Counter()
    )
    assert [p.work_id for p in decision.placements] == ["small"]
    assert dict(decision.reasons) == {"huge": "needs 16 GPUs on one node; the largest node has 8"}


def test_an_empty_pool_is_a_reason():
    assert dict(place([work("w")], [], Counter()).reasons) == {
        "w": "needs 1 CPU slots on one node; the largest node has 0"
    }


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=30, max_size=60), st.integers(1, 3))
def test_large_work_is_placed_however_much_small_work_keeps_coming(
    small: list[tuple[int, int]], machines: int
):
    """Small work (GPUs, rounds that it lasts) arrives every round; the large work needs a whole node of four."""
    nodes = {f"n{i}": dict.fromkeys((f"cuda:{d}" for d in range(4)), 0) for i in range(machines)}
    queue = [work("large", gpus=4, workspace="x", at=3)]
    lasts = {"large": 1}
    for now, (gpus, rounds) in enumerate(small):
        queue.append(work(f"s{now}", gpus=gpus, workspace="y", at=now))
        lasts[f"s{now}"] = rounds
        for devices in nodes.values():
            for device, left in devices.items():
                devices[device] = max(0, left - 1)
        pool = [
            Node(name, tuple(devices), tuple(d for d, left in devices.items() if left == 0))
            for name, devices in nodes.items()
        ]
        held = Counter({"y": sum(left > 0 for devices in nodes.values() for left in devices.values())})
        decision = place(queue, pool, held)
        for placement in decision.placements:
            if placement.work_id == "large":
                return
            for device in placement.devices:
                nodes[placement.node_id][device] = lasts[placement.work_id]
        gone = {p.work_id for p in decision.placements}
        queue = [w for w in queue if w.work_id not in gone]
    raise AssertionError("the large work starved")


def test_a_thousand_in_the_queue_are_decided_at_once():
    waiting = [work(f"w{i}", gpus=1 + i % 8, workspace=f"ws{i % 50}", at=i) for i in range(1000)]
    begun = datetime.now(UTC)
    decision = place(waiting, [node(f"n{i}", gpus=8) for i in range(20)], Counter())
    assert len(decision.placements) + len(decision.reasons) == 1000
    assert datetime.now(UTC) - begun < timedelta(seconds=2)
