"""The stream of events: everything of one's own, once, in order, over breaks, and nothing of anybody else's."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from libs.common.contracts.envelope import Envelope, fact_types
from libs.common.contracts.models import ModelReady
from libs.common.contracts.recipes import ResourceConfig
from libs.common.contracts.runs import RunCancelled, RunCreated, RunQueued
from libs.common.contracts.work import LeaseReleased
from libs.common.contracts.workspaces import KeyRevoked, ProjectCreated
from libs.common.errors import Invalid
from libs.common.identifiers import (
    CheckpointId,
    KeyId,
    LeaseId,
    ModelId,
    ProjectId,
    RunId,
    WorkId,
    WorkspaceId,
)
from services.gateway.event_tail import KEEP_EVENTS
from services.gateway.keys import digest_of
from services.gateway.public_events import INTERNAL, PUBLIC, keys_of
from tests.gateway.samples import BLOB, MINE, PROJECT, THEIRS
from tests.gateway.worlds import OWNER_KEY, ROOT_KEY, STRANGER_KEY, World, now, take


def project(number: int, workspace: WorkspaceId = MINE) -> ProjectCreated:
    return ProjectCreated(workspace_id=workspace, project_id=ProjectId(f"prj_{number}"), name=f"p{number}")


async def read(world: World, count: int, key: str = OWNER_KEY, **parameters: Any) -> list[Any]:
    """The first `count` events of a new stream."""
    last = parameters.pop("last", None)
    headers = {"Last-Event-ID": last} if last else {}
    async with (
        asyncio.timeout(15),
        world.client(key) as client,
        client.stream("GET", "/v1/events", params=parameters, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return await take(answer, count)


def subjects(frames: list[Any]) -> list[str]:
    return [frame.data["subject"] for frame in frames]


async def test_a_stream_begins_with_what_was_and_goes_on_live(world: World) -> None:
    await world.state(project(1), project(2))
    async with asyncio.timeout(15), world.client() as client, client.stream("GET", "/v1/events") as answer:
        lines = answer.aiter_lines()
        seen: list[str] = []
        async for line in lines:
            if line.startswith("data: "):
                seen.append(Envelope.model_validate_json(line[6:]).subject)
            if len(seen) == 2:
                break
        await world.state(project(3))
        async for line in lines:
            if line.startswith("data: "):
                seen.append(Envelope.model_validate_json(line[6:]).subject)
                break
    assert sorted(seen[:2]) == ["prj_1", "prj_2"]
    assert seen[2] == "prj_3"


async def test_an_event_is_a_cloud_event_with_its_cursor(world: World) -> None:
    await world.state(project(1))
    (frame,) = await read(world, 1)
    assert frame.event == frame.data["type"] == "osmosis.project.created.v1"
    assert frame.data["specversion"] == "1.0"
    assert frame.data["source"] == "/osmosis/registry"
    assert frame.data["workspaceid"] == MINE
    assert frame.data["data"]["name"] == "p1"
    assert int(frame.id) > 0


async def test_a_stream_resumes_without_gap_and_without_repetition(world: World) -> None:
    for start in range(0, 300, 50):
        await world.state(*(project(number) for number in range(start, start + 50)))
    everything = await read(world, 300)
    ids = [int(frame.id) for frame in everything]
    assert ids == sorted(set(ids))
    assert len(set(subjects(everything))) == 300
    for cut in (0, 150, 298):
        rest = await read(world, 299 - cut, last=everything[cut].id)
        assert [frame.id for frame in rest] == [frame.id for frame in everything[cut + 1 :]]


async def test_breaks_at_any_moment_lose_nothing(world: World) -> None:
    """A client that breaks off again and again while events are stated sees each of them once."""

    async def stating() -> None:
        for number in range(120):
            await world.state(project(number))

    seen: list[str] = []
    last = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stating())
        while len(seen) < 120:
            frames = await read(world, min(7, 120 - len(seen)), **({"last": last} if last else {}))
            seen += subjects(frames)
            last = frames[-1].id
    assert seen == [f"prj_{number}" for number in range(120)]


async def test_nothing_of_another_workspace_is_heard(world: World) -> None:
    await world.state(project(1, THEIRS), project(2), project(3, THEIRS))
    assert subjects(await read(world, 1)) == ["prj_2"]
    assert sorted(subjects(await read(world, 2, key=STRANGER_KEY))) == ["prj_1", "prj_3"]


async def test_types_and_subject_choose(world: World) -> None:
    run = {"workspace_id": MINE, "run_id": RunId("run_1"), "project_id": PROJECT}
    await world.state(project(1), RunCreated(**run, name="a"))
    await world.state(RunCancelled(**run), RunCreated(**{**run, "run_id": RunId("run_2")}, name="b"))
    assert subjects(await read(world, 1, types="project.created")) == ["prj_1"]
    assert {f.event for f in await read(world, 3, types="run.*")} == {
        "osmosis.run.created.v1",
        "osmosis.run.cancelled.v1",
    }
    assert subjects(await read(world, 1, types="osmosis.run.created.v1", subject="run_2")) == ["run_2"]
    events = [frame.event for frame in await read(world, 2, subject="run_1")]
    assert events == ["osmosis.run.created.v1", "osmosis.run.cancelled.v1"]


async def test_what_only_services_can_use_is_left_out(world: World) -> None:
    await world.state(
        RunQueued(
            workspace_id=MINE,
            run_id=RunId("run_1"),
            project_id=PROJECT,
            order=BLOB,
            resources=ResourceConfig(),
        ),
        LeaseReleased(
            workspace_id=MINE, lease_id=LeaseId("l"), work_id=WorkId("run_1"), work_kind="run", epoch=1
        ),
        ModelReady(workspace_id=MINE, model_id=ModelId("m"), checkpoint_id=CheckpointId("c")),
    )
    by_type = {frame.event: frame.data["data"] for frame in await read(world, 2)}
    assert set(by_type) == {"osmosis.run.queued.v1", "osmosis.model.ready.v1"}
    assert "order" not in by_type["osmosis.run.queued.v1"]
    assert "resume_from" not in by_type["osmosis.run.queued.v1"]
    assert "resources" in by_type["osmosis.run.queued.v1"]


def test_it_is_decided_of_every_fact_whether_users_hear_it() -> None:
    decided = set(PUBLIC) | INTERNAL
    assert {fact.__name__ for fact in fact_types().values()} - {fact.__name__ for fact in decided} == set()
    assert set(PUBLIC) & INTERNAL == set()
    for fact, hidden in PUBLIC.items():
        assert hidden <= set(fact.model_fields), fact


async def test_now_skips_what_was(world: World) -> None:
    await world.state(project(1))
    await read(world, 1)
    async with asyncio.timeout(15), world.client() as client:
        async with client.stream("GET", "/v1/events", params={"cursor": "now"}) as answer:
            stated = asyncio.create_task(world.state(project(2)))
            assert subjects(await take(answer, 1)) == ["prj_2"]
            await stated


@pytest.mark.parametrize("cursor", ["abc", "-1", "999999", "1.5", "²"])
async def test_a_cursor_that_is_none_of_this_log_is_refused(world: World, cursor: str) -> None:
    async with world.client() as client:
        answer = await client.get("/v1/events", params={"cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "query.cursor"


async def test_a_cursor_in_front_of_forgotten_events_is_gone(world: World) -> None:
    await world.state(project(1))
    await world.state(project(2))
    first, second = await read(world, 2)
    units = world.services["gateway"].units
    async with units.begin() as uow:
        await uow.store.forget(now() - KEEP_EVENTS)
    assert len(await read(world, 2)) == 2, "nothing is old enough yet"
    async with units.begin() as uow:
        await uow.store.forget(now() + timedelta(seconds=1))
    await world.state(project(3))
    assert subjects(await read(world, 1)) == ["prj_3"]
    assert subjects(await read(world, 1, last=second.id)) == ["prj_3"], "nothing was missed"
    async with world.client() as client:
        answer = await client.get("/v1/events", headers={"Last-Event-ID": first.id})
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:osmosis:problem:gone")


async def test_a_forgotten_cursor_is_never_given_again(world: World) -> None:
    await world.state(project(1))
    (before,) = await read(world, 1)
    async with world.services["gateway"].units.begin() as uow:
        await uow.store.forget(now() + timedelta(seconds=1))
    await world.state(project(2))
    (after,) = await read(world, 1)
    assert int(after.id) > int(before.id)


async def test_a_stream_ends_when_its_key_is_revoked(world: World) -> None:
    async with asyncio.timeout(10), world.client() as client, client.stream("GET", "/v1/events") as answer:
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(":")
        del world.keys[digest_of(OWNER_KEY)]
        await world.state(KeyRevoked(workspace_id=MINE, key_id=KeyId("key_owner"), digest="0" * 64))
        rest = [line async for line in lines]
    assert not any("0" * 64 in line for line in rest)


async def test_the_operators_key_has_no_workspace_to_stream(world: World) -> None:
    async with world.client(ROOT_KEY) as client:
        assert (await client.get("/v1/events")).status_code == 401


def test_unknown_types_are_named() -> None:
    assert keys_of(None) is None
    assert keys_of(" ") is None
    assert keys_of("run.created, project.*") == {"run.created", "project.created", "project.deleted"}
    with pytest.raises(Invalid, match=r"rum\.created"):
        keys_of("run.created,rum.created")
    with pytest.raises(Invalid):
        keys_of("lease.granted")
