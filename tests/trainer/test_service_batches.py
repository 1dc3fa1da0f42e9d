"""Batches: asked for once, filled in order of completion, fetched by long poll from any replica."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from libs.common.contracts.attempts import CompletedGroups
from libs.common.contracts.blobs import Parcel
from libs.common.contracts.recipes import Recipe
from libs.common.contracts.rollouts import BatchRequested, GroupCompleted
from libs.common.contracts.trajectories import Group
from libs.common.contracts.work import AttemptStepped
from libs.common.identifiers import BatchId, GroupId, RunId
from services.trainer.service import build
from tests.trainer.worlds import WORKSPACE, World, recipe, until

RUN = "run_1"
BATCH = "batch_run_1_1_train_1"


@pytest.fixture
async def client(world: World) -> httpx.AsyncClient:
    _, client = await world.opened(RUN)
    started = await client.post("/started", json={"engine_url": "http://127.0.0.1:9"})
    assert started.status_code == 200
    return client


def batch(batch_id: str = BATCH, groups: int = 2, **changes: Any) -> dict[str, Any]:
    order: dict[str, Any] = {
        "batch_id": batch_id,
        "step": 1,
        "phase": "train",
        "groups": [{"group_id": f"{batch_id}_{n}", "row_index": n} for n in range(groups)],
        "n_samples": 4,
        "sampling": {},
        "seed": 5,
        "timeout_s": 60,
    }
    return order | changes


def completed(number: int, batch_id: str = BATCH, epoch: int = 1) -> GroupCompleted:
    group_id = f"{batch_id}_{number}"
    group = Group(
        group_id=group_id, run_id=RUN, epoch=epoch, batch_id=batch_id, row_index=number, trajectories=[]
    )
    return GroupCompleted(
        workspace_id=WORKSPACE,
        group_id=GroupId(group_id),
        batch_id=BatchId(batch_id),
        run_id=RunId(RUN),
        epoch=epoch,
        step=1,
        phase="train",
        group=Parcel[Group](inline=group.model_dump(mode="json")),
    )


async def fetch(
    client: httpx.AsyncClient, after: int = 0, wait_s: float = 0.0, batch_id: str = BATCH
) -> CompletedGroups:
    answer = await client.get(f"/batches/{batch_id}/groups", params={"after": after, "wait_s": wait_s})
    assert answer.status_code == 200, answer.text
    return CompletedGroups.model_validate_json(answer.content)


def numbers(answer: CompletedGroups) -> list[int]:
    return [(parcel.inline or {})["row_index"] for parcel in answer.groups]


async def test_a_batch_is_stated_once_with_recipe_engine_and_deadline(
    world: World, client: httpx.AsyncClient
) -> None:
    before = world.platform.clock.now()
    for _ in range(3):
        assert (await client.post("/batches", json=batch())).status_code == 200
    assert (await client.post("/batches", json=batch("batch_2", step=2))).status_code == 200
    await until(lambda: len(world.facts(BatchRequested)) == 2, "two batches")
    first = world.facts(BatchRequested)[0]
    assert (first.batch_id, first.run_id, first.epoch, first.n_samples, first.seed) == (BATCH, RUN, 1, 4, 5)
    assert first.engine_url == "http://127.0.0.1:9"
    assert 60 <= (first.deadline - before).total_seconds() < 65
    kept = await world.platform.blobs.get_bytes(first.recipe)
    assert Recipe.model_validate_json(kept) == recipe(RUN)


async def test_a_batch_goes_on_with_the_trace_of_its_attempt(world: World, client: httpx.AsyncClient) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert (await client.post("/batches", json=batch(), headers=headers)).status_code == 200
    await until(lambda: world.facts(BatchRequested), "the batch")
    envelope = next(e for e in world.envelopes if e.routing_key == BatchRequested.KEY)
    assert envelope.traceparent is not None
    assert envelope.traceparent.split("-")[1] == trace


async def test_a_batch_id_cannot_stand_for_two_batches(client: httpx.AsyncClient) -> None:
    assert (await client.post("/batches", json=batch())).status_code == 200
    assert (await client.post("/batches", json=batch(seed=6))).status_code == 409


async def test_a_batch_before_the_start_is_refused(world: World) -> None:
    _, client = await world.opened("run_2")
    assert (await client.post("/batches", json=batch())).status_code == 409
    assert world.facts(BatchRequested) == []


async def test_groups_come_in_order_of_completion_and_from_a_position(
    world: World, client: httpx.AsyncClient
) -> None:
    await client.post("/batches", json=batch(groups=3))
    for number in (2, 0, 1):
        await world.state(completed(number))
        await until_kept(client, number)
    everything = await fetch(client)
    assert (numbers(everything), everything.position, everything.done) == ([2, 0, 1], 3, True)
    rest = await fetch(client, after=2)
    assert (numbers(rest), rest.position, rest.done) == ([1], 3, True)
    nothing = await fetch(client, after=3)
    assert (numbers(nothing), nothing.position, nothing.done) == ([], 3, True)


async def until_kept(client: httpx.AsyncClient, number: int) -> None:
    while number not in numbers(await fetch(client)):
        pass


async def test_a_group_that_is_completed_twice_counts_once(world: World, client: httpx.AsyncClient) -> None:
    await client.post("/batches", json=batch(groups=2))
    for number in (0, 0, 0):
        await world.state(completed(number))
    await world.state(completed(1))
    await until_kept(client, 1)
    answer = await fetch(client)
    assert (sorted(numbers(answer)), answer.position) == ([0, 1], 2)


async def test_groups_of_strangers_and_older_epochs_are_ignored(
    world: World, client: httpx.AsyncClient
) -> None:
    await client.post("/batches", json=batch(groups=2))
    await world.state(completed(0, batch_id="batch_unknown"))
    await world.state(completed(0, epoch=9))
    await world.state(completed(1))
    await until_kept(client, 1)
    answer = await fetch(client)
    assert (numbers(answer), answer.done) == ([1], False)


async def test_a_long_poll_returns_when_a_group_arrives(world: World, client: httpx.AsyncClient) -> None:
    await client.post("/batches", json=batch())
    waiting = asyncio.create_task(fetch(client, wait_s=20))
    began = time.monotonic()
    await world.state(completed(0))
    answer = await waiting
    assert numbers(answer) == [0]
    assert time.monotonic() - began < 10


async def test_a_long_poll_without_news_ends_empty_in_time(client: httpx.AsyncClient) -> None:
    await client.post("/batches", json=batch())
    began = time.monotonic()
    answer = await fetch(client, wait_s=0.2)
    assert (answer.groups, answer.position, answer.done) == ([], 0, False)
    assert 0.2 <= time.monotonic() - began < 5


async def test_a_long_poll_of_one_replica_sees_what_another_kept(
    world: World, client: httpx.AsyncClient
) -> None:
    await client.post("/batches", json=batch())
    waiting = asyncio.create_task(fetch(client, wait_s=20))
    other = build(world.platform)
    kept = completed(0)
    async with other.units.begin() as uow:
        assert await uow.store.keep_group(kept.batch_id, kept.group_id, kept.group.model_dump_json())
    assert numbers(await waiting) == [0]
    await other.aclose()


async def test_a_long_poll_of_an_attempt_that_is_fenced_off_is_refused(
    world: World, client: httpx.AsyncClient
) -> None:
    await client.post("/batches", json=batch())
    path = f"/batches/{BATCH}/groups"
    waiting = asyncio.create_task(client.get(path, params={"wait_s": 20}))
    await world.grant(RUN, epoch=2)
    assert (await waiting).status_code == 409


async def test_a_batch_of_nobody_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/batches/batch_unknown/groups")).status_code == 404


async def test_groups_of_a_batch_are_dropped_when_a_later_step_is_done(
    world: World, client: httpx.AsyncClient
) -> None:
    await client.post("/batches", json=batch(groups=1))
    await world.state(completed(0))
    await until_kept(client, 0)
    report = {"step": 2, "total_steps": 3, "metrics": {}}
    assert (await client.post("/steps", json=report)).status_code == 200
    await until(lambda: world.facts(AttemptStepped), "the step")
    assert (await fetch(client)).groups == []
