"""Every route of the documentation, walked with no key, with a stranger's and with the owner's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from libs.common.consuming import bury
from libs.common.contracts.blobs import ArtifactFile
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.models import ListModelFiles, ModelFiles
from libs.common.contracts.runs import GetRun
from libs.common.contracts.workspaces import ProjectDeleted
from services.gateway.api import app_of_routes
from services.gateway.door import OPEN_PATHS
from services.gateway.openapi_document import complete
from tests.gateway.samples import AT, CONFIG, MINE, PROJECT, RUN_VIEW
from tests.gateway.worlds import ROOT_KEY, STRANGER_KEY, World

DOCUMENT = complete(app_of_routes())
BODIES: dict[str, Any] = {
    "create_workspace": {"name": "mine"},
    "create_project": {"name": "additions"},
    "connect_repository": {"url": "https://git.example/repo"},
    "create_dataset": {"file_name": "rows.jsonl"},
    "register_base_model": {"name": "tiny", "folder": "tiny"},
    "create_run": CONFIG.model_dump(mode="json"),
}
ROOT_ONLY = {
    "create_workspace",
    "create_first_key",
    "list_dead_letters",
    "replay_dead_letter",
    "get_exposition",
}
STREAMS = {"stream_events", "stream_metrics"}


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the documentation has it."""

    method: str
    path: str
    said: dict[str, Any]

    @property
    def name(self) -> str:
        return self.said["operationId"]

    async def call(self, client: httpx.AsyncClient) -> httpx.Response:
        """With ids of things that exist for the owner, and a body where there is one."""
        path = self.path.replace("{path}", "model.safetensors").replace("{project_id}", "prj_1")
        arguments: dict[str, Any] = {"params": {"service": "registry"} if "dead_letter" in self.name else {}}
        if self.name == "upload_content":
            arguments["content"] = b'{"user_prompt": "1 + 1?", "ground_truth": "2"}\n'
        elif "requestBody" in self.said:
            arguments["json"] = BODIES.get(self.name, {})
        return await client.request(self.method, re.sub(r"\{(\w+)\}", "some_1", path), **arguments)


OPERATIONS = [
    Operation(method, path, said)
    for path, operations in DOCUMENT["paths"].items()
    for method, said in operations.items()
    if path not in OPEN_PATHS
]


async def walk(client: httpx.AsyncClient, operations: Iterable[Operation]) -> dict[str, httpx.Response]:
    """The answer of every operation, by its name."""
    return {operation.name: await operation.call(client) for operation in operations}


@pytest.mark.parametrize("key", [None, "osm_unknown_key", "not a key"])
async def test_no_route_opens_without_a_key_that_is_known(world: World, key: str | None) -> None:
    async with world.client(key) as client:
        answers = await walk(client, OPERATIONS)
    assert len(answers) > 40
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 401} == {}
    for answer in answers.values():
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert [asked for asked in world.asked if type(asked.request).NAME != "authenticate"] == []


async def test_a_stranger_finds_nothing_behind_any_id(world: World) -> None:
    behind_ids = [op for op in OPERATIONS if "{" in op.path and op.name not in ROOT_ONLY]
    async with world.client(STRANGER_KEY) as client:
        answers = await walk(client, behind_ids)
    assert len(answers) > 25
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 404} == {}
    assert {answer.json()["type"] for answer in answers.values()} == {"urn:osmosis:problem:not_found"}
    assert world.blobs is not None
    assert [key async for key in world.blobs.list("")] == []


async def test_the_operators_routes_are_shut_for_a_workspaces_key(world: World) -> None:
    operators = [op for op in OPERATIONS if op.name in ROOT_ONLY]
    async with world.client() as client:
        answers = await walk(client, operators)
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 403} == {}
    async with world.client(ROOT_KEY) as client:
        opened = await walk(client, [op for op in operators if op.name != "replay_dead_letter"])
    assert {name: answer.text for name, answer in opened.items() if not answer.is_success} == {}


async def test_the_owner_gets_what_the_documentation_says(world: World) -> None:
    assert world.blobs is not None
    blob = await world.blobs.put_bytes("models/mdl_1/model.safetensors", b"weights")
    world.scripted[ListModelFiles] = lambda _: ModelFiles(
        files=[ArtifactFile(path="model.safetensors", blob=blob)]
    )
    owners = [op for op in OPERATIONS if op.name not in ROOT_ONLY | STREAMS]
    async with world.client() as client:
        answers = await walk(client, owners)
    assert {name: answer.text for name, answer in answers.items() if not answer.is_success} == {}
    undocumented = [op.name for op in owners if str(answers[op.name].status_code) not in op.said["responses"]]
    assert undocumented == []
    assert all(answer.headers["x-request-id"].startswith("req_") for answer in answers.values())


async def test_the_operator_reads_dead_letters_and_handles_one_again(world: World) -> None:
    lost = Envelope.wrap(
        ProjectDeleted(workspace_id=MINE, project_id=PROJECT),
        id="evt_1",
        source="registry",
        time=AT,
        traceparent=None,
    )
    await bury(world.services["gateway"].units, "gateway.facts", lost, 6, "ValueError: it broke")
    async with world.client(ROOT_KEY) as client:
        letters = (await client.get("/v1/dead-letters", params={"service": "gateway"})).json()["items"]
        replayed = await client.post(
            f"/v1/dead-letters/{letters[0]['id']}/replay", params={"service": "gateway"}
        )
        left = (await client.get("/v1/dead-letters", params={"service": "gateway"})).json()["items"]
    assert [(letter["error"], letter["envelope"]["id"]) for letter in letters] == [
        ("ValueError: it broke", "evt_1")
    ]
    assert (replayed.status_code, left) == (204, [])


async def test_every_question_is_asked_in_the_callers_name(world: World) -> None:
    async with world.client() as client:
        await client.get("/v1/runs/run_1")
    asked = next(asked for asked in world.asked if isinstance(asked.request, GetRun))
    assert (asked.caller.kind, asked.caller.workspace_id, asked.caller.key_id) == (
        "key",
        "ws_mine",
        "key_owner",
    )


async def test_a_sync_of_another_project_is_not_found(world: World) -> None:
    async with world.client() as client:
        assert (await client.get("/v1/projects/prj_other/syncs/sync_1")).status_code == 404


async def test_lists_are_pages_with_a_cursor(world: World) -> None:
    async with world.client() as client:
        page = (await client.get("/v1/projects", params={"limit": 1, "cursor": "prj_0"})).json()
    assert page["next_cursor"] == "prj_1"
    assert [item["id"] for item in page["items"]] == ["prj_1"]
    asked = world.asked[-1].request
    assert (asked.limit, asked.cursor) == (1, "prj_0")


async def test_the_configuration_of_a_run_reaches_the_registry_as_it_came(world: World) -> None:
    odd = {"colour": "red", "training": {"lr": "fast"}}
    async with world.client() as client:
        assert (await client.post("/v1/projects/prj_1/runs", json=odd)).status_code == 201
    assert world.asked[-1].request.config == odd


async def test_a_command_with_the_same_idempotency_key_is_carried_out_once(world: World) -> None:
    headers = {"Idempotency-Key": "one"}
    async with world.client() as client:
        first = await client.post("/v1/projects", json={"name": "a"}, headers=headers)
        again = await client.post("/v1/projects", json={"name": "a"}, headers=headers)
        other = await client.post("/v1/projects", json={"name": "b"}, headers=headers)
        bad = await client.post("/v1/projects", json={"name": "a"}, headers={"Idempotency-Key": "a b"})
    assert (first.status_code, again.status_code, other.status_code, bad.status_code) == (201, 201, 409, 422)
    assert first.json() == again.json()
    assert [asked.request.name for asked in world.asked if type(asked.request).NAME == "create_project"] == [
        "a"
    ]
    assert bad.json()["errors"][0]["path"] == "header.Idempotency-Key"


async def test_a_request_id_is_taken_over_and_else_made(world: World) -> None:
    async with world.client() as client:
        named = await client.get("/v1/runs", headers={"X-Request-Id": "from-me.1"})
        hostile = await client.get("/v1/runs", headers={"X-Request-Id": "a\tb" * 100})
    assert named.headers["x-request-id"] == "from-me.1"
    assert hostile.headers["x-request-id"].startswith("req_")


async def test_health_and_readiness_need_no_key(world: World) -> None:
    async with world.client(None) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        ready = await client.get("/ready")
    assert ready.status_code == 200
    assert ready.json() == {"bus": "ok", "blobs": "ok", "database:gateway": "ok"}


async def test_prometheus_scrapes_with_the_operators_key(world: World) -> None:
    async with world.client(ROOT_KEY) as client:
        answer = await client.get("/metrics")
    assert answer.text == "osmosis_runs 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_queue_of_a_run_names_why_it_waits(world: World) -> None:
    world.scripted[GetRun] = lambda _: RUN_VIEW.model_copy(update={"status": "queued"})
    async with world.client() as client:
        assert (await client.get("/v1/runs/run_1/queue")).json() == {"entry": None}
    assert world.asked[-1].request.work_id == "run_1"
