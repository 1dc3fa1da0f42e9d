"""An attempt's calls from hello to its end: what they state, what they refuse, what they say twice."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from libs.common.contracts.attempts import Hello
from libs.common.contracts.recipes import Recipe, ResumePoint
from libs.common.contracts.runs import RunCancelled, RunFailed, RunPausing
from libs.common.contracts.work import (
    AttemptEnded,
    AttemptStarted,
    AttemptStepped,
    CheckpointSaved,
    JobCancelled,
    LeaseLost,
    LeaseReleased,
)
from libs.common.errors import Conflict, Unavailable
from libs.common.identifiers import CheckpointId, JobId, LeaseId, ProjectId, RunId, WorkId
from tests.trainer.worlds import NOWHERE, WORKSPACE, World, answered, recipe, until

RUN = "run_1"
STARTED = {"engine_url": "http://127.0.0.1:9", "total_steps": 3, "from_step": 0}
STEP = {"step": 1, "total_steps": 3, "metrics": {"rollout/raw_reward": 0.5}}
CHECKPOINT = {
    "checkpoint_id": "ckpt_1",
    "step": 1,
    "manifest": NOWHERE.model_dump(),
    "size": 7,
    "metrics": {"rollout/raw_reward": 0.5},
}
ENDED = {"outcome": "completed", "step": 3}


def lease_gone(kind: type[LeaseLost] | type[LeaseReleased], epoch: int) -> LeaseLost | LeaseReleased:
    more: dict[str, Any] = {"reason": "gone"} if kind is LeaseLost else {}
    return kind(
        workspace_id=WORKSPACE,
        lease_id=LeaseId("lease_1"),
        work_id=WorkId(RUN),
        work_kind="run",
        epoch=epoch,
        **more,
    )


async def directive(client: httpx.AsyncClient) -> str:
    answer = await client.post("/heartbeat")
    assert answer.status_code == 200, answer.text
    return answer.json()["directive"]


async def directed(client: httpx.AsyncClient, wanted: str) -> None:
    while await directive(client) != wanted:
        pass


async def test_hello_waits_for_the_lease_and_answers_the_order(world: World) -> None:
    early = world.client(RUN, 1)
    assert (await early.post("/hello")).status_code == 404
    point = ResumePoint(checkpoint_id=CheckpointId("ckpt_0"), step=2, manifest=NOWHERE)
    await world.grant(RUN, resume_from=point)
    hello = Hello.model_validate((await answered(early, 200)).json())
    assert hello.order.kind == "train"
    assert hello.order.recipe == recipe(RUN)
    assert hello.resume_from == point
    assert hello.heartbeat_s * 5 <= hello.lease_ttl_s


async def test_only_the_token_of_this_work_and_epoch_opens(world: World) -> None:
    epoch, _ = await world.opened(RUN)
    for token in ("wrong", world.token("engine", RUN, epoch), world.token("attempt", RUN, epoch + 1)):
        answer = await world.client(RUN, epoch, token).post("/started", json=STARTED)
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"
    async with httpx.AsyncClient(base_url=world.address) as nobody:
        assert (await nobody.post(f"/attempts/{RUN}/{epoch}/started", json=STARTED)).status_code == 401
    assert world.facts(AttemptStarted) == []


async def test_an_attempt_states_start_steps_checkpoints_and_end_once_each(world: World) -> None:
    epoch, client = await world.opened(RUN)
    validation = STEP | {"phase": "validation", "step": 0}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/started", STARTED),
        ("/steps", validation),
        ("/steps", STEP),
        ("/checkpoints", CHECKPOINT),
        ("/ended", ENDED),
    ]
    for path, body in calls:
        for _ in range(2):
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
    await until(lambda: world.facts(AttemptEnded), "the end")
    (started,) = world.facts(AttemptStarted)
    assert (started.engine_url, started.total_steps, started.epoch) == (
        STARTED["engine_url"],
        3,
        epoch,
    )
    assert [(s.step, s.phase, s.metrics) for s in world.facts(AttemptStepped)] == [
        (0, "validation", STEP["metrics"]),
        (1, "train", STEP["metrics"]),
    ]
    (saved,) = world.facts(CheckpointSaved)
    assert (saved.run_id, saved.checkpoint_id, saved.epoch) == (RUN, "ckpt_1", epoch)
    (ended,) = world.facts(AttemptEnded)
    assert (ended.outcome, ended.step, ended.work_kind) == ("completed", 3, "run")


async def test_an_end_cannot_be_taken_back(world: World) -> None:
    _, client = await world.opened(RUN)
    assert (await client.post("/ended", json=ENDED)).status_code == 200
    for path, body in (
        ("/ended", {"outcome": "failed", "error": "no"}),
        ("/steps", STEP),
        ("/heartbeat", None),
        ("/hello", None),
    ):
        assert (await client.post(path, json=body)).status_code == 409, path


async def test_a_second_process_of_an_epoch_is_refused(world: World) -> None:
    _, client = await world.opened(RUN)
    assert (await client.post("/started", json=STARTED)).status_code == 200
    other = await client.post("/started", json=STARTED | {"engine_url": "http://127.0.0.1:10"})
    assert other.status_code == 409


async def test_an_older_epoch_is_refused_on_every_route(world: World) -> None:
    _, old = await world.opened(RUN)
    await world.opened(RUN)
    calls: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", "/hello", None),
        ("POST", "/started", STARTED),
        ("POST", "/heartbeat", None),
        ("POST", "/steps", STEP),
        ("POST", "/checkpoints", CHECKPOINT),
        ("POST", "/ended", ENDED),
        ("GET", "/batches/batch_1/groups", None),
    ]
    for method, path, body in calls:
        answer = await old.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), path
    assert world.heard == []


async def test_an_older_grant_that_comes_late_opens_nothing(world: World) -> None:
    _, newer = await world.opened(RUN, epoch=2)
    await world.grant(RUN, epoch=1)
    await answered(world.client(RUN, 1), 409)
    assert (await newer.post("/hello")).status_code == 200


@pytest.mark.parametrize("kind", [LeaseLost, LeaseReleased])
async def test_an_attempt_whose_lease_is_gone_is_refused(
    world: World, kind: type[LeaseLost] | type[LeaseReleased]
) -> None:
    epoch, client = await world.opened(RUN)
    await world.state(lease_gone(kind, epoch + 1))
    await world.state(lease_gone(kind, epoch))
    await answered(client, 409, "/heartbeat")


async def test_a_lease_that_is_released_after_the_end_leaves_the_end_repeatable(world: World) -> None:
    epoch, client = await world.opened(RUN)
    assert (await client.post("/ended", json=ENDED)).status_code == 200
    await world.state(lease_gone(LeaseReleased, epoch))
    await world.opened("run_2")
    assert (await client.post("/ended", json=ENDED)).status_code == 200


async def test_heartbeats_go_on_to_the_scheduler_now_and_then(world: World) -> None:
    epoch, client = await world.opened(RUN)
    for _ in range(5):
        assert await directive(client) == "go"
    assert world.beats == [(RUN, epoch)]


async def test_a_heartbeat_that_the_scheduler_refuses_ends_the_attempt(world: World) -> None:
    _, client = await world.opened(RUN)
    world.scheduler_says = Conflict
    assert (await client.post("/heartbeat")).status_code == 409
    world.scheduler_says = None
    assert (await client.post("/steps", json=STEP)).status_code == 409


async def test_a_silent_scheduler_ends_no_attempt(world: World) -> None:
    _, client = await world.opened(RUN)
    world.scheduler_says = Unavailable
    assert await directive(client) == "go"
    world.scheduler_says = None
    assert await directive(client) == "go"
    assert len(world.beats) == 1


async def test_pause_and_cancel_reach_the_attempt_and_cancel_wins(world: World) -> None:
    epoch, client = await world.opened(RUN)
    run = {"workspace_id": WORKSPACE, "run_id": RunId(RUN), "project_id": ProjectId("prj_test")}
    await world.state(RunPausing(**run, epoch=epoch + 7))
    await world.state(RunPausing(**run, epoch=epoch))
    await directed(client, "pause")
    await world.state(RunCancelled(**run))
    await directed(client, "cancel")
    await world.state(RunPausing(**run, epoch=epoch))
    await world.opened("run_2")
    assert await directive(client) == "cancel"


async def test_work_that_was_cancelled_before_its_lease_is_told_so_at_once(world: World) -> None:
    run = {"workspace_id": WORKSPACE, "project_id": ProjectId("prj_test")}
    await world.state(RunCancelled(**run, run_id=RunId("run_1")))
    await world.state(RunFailed(**run, run_id=RunId("run_2"), error="too many attempts"))
    await world.state(JobCancelled(workspace_id=WORKSPACE, job_id=JobId("job_1")))
    for work in ("run_1", "run_2", "job_1"):
        _, client = await world.opened(work)
        await directed(client, "cancel")


async def test_the_recipe_of_batches_is_the_recipe_of_the_order(world: World) -> None:
    await world.opened(RUN)
    kept = await world.platform.blobs.stat(f"runs/{RUN}/recipe.json")
    assert kept is not None
    assert Recipe.model_validate_json(await world.platform.blobs.get_bytes(kept)) == recipe(RUN)


async def test_a_body_that_cannot_be_read_names_its_fields(world: World) -> None:
    _, client = await world.opened(RUN)
    answer = await client.post("/steps", json={"step": "three"})
    assert answer.status_code == 422
    assert {field["path"] for field in answer.json()["fields"]} >= {"body.step", "body.metrics"}
