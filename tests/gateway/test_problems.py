"""Every failure is a problem (RFC 9457) that says what, where and what to do."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from libs.common.contracts.requests import Caller
from libs.common.contracts.runs import CreateRun, GetRun
from libs.common.errors import Conflict, FieldError, Forbidden, Invalid, Unavailable
from services.gateway.door import Door
from services.gateway.state import Gateway
from services.gateway.strict_json import check_json
from tests.gateway.worlds import World

MEMBERS = {"type", "title", "status", "detail", "instance", "request_id", "errors"}


def check_problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == MEMBERS
    assert (problem["status"], problem["type"]) == (status, f"urn:osmosis:problem:{kind}")
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["instance"] == answer.request.url.path
    return problem


async def test_an_unknown_route_and_an_unknown_method_are_problems(world: World) -> None:
    async with world.client() as client:
        check_problem(await client.get("/v1/nothing"), 404, "not_found")
        wrong = await client.patch("/v1/projects")
        check_problem(wrong, 405, "method_not_allowed")
        assert wrong.headers["allow"] == "GET, POST"


async def test_every_fault_of_a_body_is_named_with_its_path(world: World) -> None:
    async with world.client() as client:
        answer = await client.post("/v1/projects", json={"name": "Not OK", "description": 7, "colour": "red"})
    problem = check_problem(answer, 422, "invalid")
    assert {fault["path"] for fault in problem["errors"]} == {"name", "description", "colour"}
    assert all(fault["message"] for fault in problem["errors"])


async def test_faults_of_parameters_name_their_place(world: World) -> None:
    async with world.client() as client:
        answer = await client.get("/v1/runs", params={"limit": 0, "status": "odd"})
    paths = {fault["path"] for fault in check_problem(answer, 422, "invalid")["errors"]}
    assert paths == {"query.limit", "query.status"}


async def test_faults_of_a_configuration_come_with_paths_into_it(world: World) -> None:
    def refuse(_: Any) -> Any:
        raise Invalid(
            "two faults", fields=[FieldError("config.training.lr", "a number"), FieldError("dataset", "none")]
        )

    world.scripted[CreateRun] = refuse
    async with world.client() as client:
        answer = await client.post("/v1/projects/prj_1/runs", json={"training": {"lr": "fast"}})
    problem = check_problem(answer, 422, "invalid")
    assert [fault["path"] for fault in problem["errors"]] == ["training.lr", "dataset"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Conflict("it has ended"), 409, "conflict"),
        (Forbidden("not yours to do"), 403, "forbidden"),
        (Unavailable("nobody answers"), 503, "unavailable"),
    ],
)
async def test_a_services_error_becomes_a_problem(
    world: World, error: Exception, status: int, kind: str
) -> None:
    def fail(_: Any) -> Any:
        raise error

    world.scripted[GetRun] = fail
    async with world.client() as client:
        answer = await client.get("/v1/runs/run_1")
    assert check_problem(answer, status, kind)["detail"] == str(error)
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_a_defect_of_a_service_tells_nothing_of_its_text(world: World) -> None:
    def break_down(_: Any) -> Any:
        raise RuntimeError("password=hunter2")

    world.scripted[GetRun] = break_down
    async with world.client() as client:
        answer = await client.get("/v1/runs/run_1")
    check_problem(answer, 503, "unavailable")
    assert "hunter2" not in answer.text


async def test_a_body_over_the_limit_is_refused_announced_or_not(world: World) -> None:
    large = json.dumps({"name": "a" * 3_000_000}).encode()

    async def unannounced() -> Any:
        for start in range(0, len(large), 100_000):
            yield large[start : start + 100_000]

    headers = {"Content-Type": "application/json"}
    async with world.client() as client:
        check_problem(await client.post("/v1/projects", content=large, headers=headers), 413, "too_large")
        check_problem(
            await client.post("/v1/projects", content=unannounced(), headers=headers), 413, "too_large"
        )


async def test_a_body_of_another_type_is_refused(world: World) -> None:
    async with world.client() as client:
        answer = await client.post("/v1/projects", data={"name": "a"})
    check_problem(answer, 415, "unsupported_media_type")


async def test_nul_in_the_address_is_refused(world: World) -> None:
    async with world.client() as client:
        check_problem(await client.get("/v1/runs?cursor=a%00b"), 422, "invalid")
        answer = await client.get("/v1/runs/a%00b")
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"name": "a", "name": "b"}', "same name twice"),
        (b'{"name": NaN}', "NaN"),
        (b'{"name": 1e400}', "out of range"),
        (b'{"name": "\\ud800"}', "surrogate"),
        (b'{"name": "a\\u0000"}', "NUL"),
        ('{"name": "a"}'.encode("utf-16"), "UTF-8"),
        (b'\xef\xbb\xbf{"name": "a"}', "BOM"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b'{"name": ' + b"1" * 5000 + b"}", "integer"),
        (b'{"name": ', "not JSON"),
    ],
)
async def test_a_body_that_peers_would_read_differently_is_refused(
    world: World, body: bytes, reason: str
) -> None:
    async with world.client() as client:
        answer = await client.post("/v1/projects", content=body, headers={"Content-Type": "application/json"})
    problem = check_problem(answer, 422, "invalid")
    assert reason.lower() in problem["detail"].lower()


def test_ordinary_json_passes() -> None:
    check_json('{"a": [1, -2.5e3, true, null, "\\ud83d\\ude00", "ü"], "b": {"c": {}}}'.encode())


async def test_a_call_under_way_while_the_platform_stops_is_a_problem(world: World) -> None:
    asked = asyncio.Event()

    async def never(message: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    bus = world.services["gateway"].platform.bus
    async with world.client() as client:
        await client.get("/v1/runs/run_1")
        await bus.serve("metrics", never)
        call = asyncio.create_task(client.get("/v1/runs/run_1/metrics"))
        await asked.wait()
        await bus.stop_consuming()
        check_problem(await call, 503, "unavailable")


class _Authenticator:
    async def caller(self, token: str | None) -> Caller:
        return Caller(kind="root")


class _Clock:
    def now(self) -> Any:
        from datetime import UTC, datetime

        return datetime(2026, 12, 1, tzinfo=UTC)


class _Gateway:
    authenticator = _Authenticator()
    platform = type("P", (), {"clock": _Clock()})()


def behind_a_door(app: Any) -> httpx.AsyncClient:
    door = Door(app, cast("Gateway", _Gateway()), body_deadline_s=0.05)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://door")


async def test_a_defect_of_the_gateway_is_a_problem_without_its_text() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("password=hunter2")

    async with behind_a_door(broken) as client:
        answer = await client.get("/v1/anything")
    check_problem(answer, 500, "internal")
    assert "hunter2" not in answer.text


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def unreached(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the route was reached")

    async def slow() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    async with behind_a_door(unreached) as client:
        answer = await client.post(
            "/v1/projects", content=slow(), headers={"Content-Type": "application/json"}
        )
    check_problem(answer, 408, "too_slow")
