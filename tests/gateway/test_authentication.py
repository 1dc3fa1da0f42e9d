"""Keys: shown once, digested at once, believed for seconds, dead the moment they are revoked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from libs.common.clock import ManualClock
from libs.common.contracts.requests import Caller, ReplyMessage, RequestMessage
from libs.common.contracts.workspaces import Authenticate, Authenticated, CreateKey, KeyRevoked
from libs.common.errors import Unauthenticated
from libs.common.identifiers import KeyId
from services.gateway.authentication import BELIEVE_FOR, Authenticator
from services.gateway.keys import digest_of, make_key
from tests.gateway.samples import MINE
from tests.gateway.worlds import OWNER_KEY, ROOT_KEY, World, platform_of

OWNER = Caller(kind="key", workspace_id=MINE, key_id="key_owner")


class Registry:
    """Answers `Authenticate` on a bus, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.known = True
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, message: RequestMessage) -> ReplyMessage:
        self.asked += 1
        known = self.known
        await self.gate.wait()
        return ReplyMessage.of(message, Authenticated(caller=OWNER) if known else Unauthenticated("unknown"))


async def authenticator(folder: Path) -> tuple[Authenticator, Registry, ManualClock]:
    clock = ManualClock(datetime.now(UTC))
    platform = replace(platform_of(folder), clock=clock)
    registry = Registry()
    await platform.bus.start()
    await platform.bus.serve("registry", registry.answer)
    return Authenticator(platform), registry, clock


async def test_a_key_is_looked_up_once_in_a_few_seconds(tmp_path: Path) -> None:
    door, registry, clock = await authenticator(tmp_path)
    for _ in range(3):
        assert await door.caller(OWNER_KEY) == OWNER
    assert registry.asked == 1
    clock.advance(BELIEVE_FOR + timedelta(milliseconds=1))
    assert await door.caller(OWNER_KEY) == OWNER
    assert registry.asked == 2


async def test_a_revoked_key_is_looked_up_again_at_once(tmp_path: Path) -> None:
    door, registry, _ = await authenticator(tmp_path)
    await door.caller(OWNER_KEY)
    registry.known = False
    door.forget(KeyId("key_owner"))
    with pytest.raises(Unauthenticated):
        await door.caller(OWNER_KEY)


async def test_an_answer_that_left_before_the_revocation_is_not_believed(tmp_path: Path) -> None:
    door, registry, _ = await authenticator(tmp_path)
    registry.gate.clear()
    late = asyncio.create_task(door.caller(OWNER_KEY))
    while registry.asked == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    registry.known = False
    door.forget(KeyId("key_owner"))
    registry.gate.set()
    await late
    with pytest.raises(Unauthenticated):
        await door.caller(OWNER_KEY)


@pytest.mark.parametrize("token", [None, "", "nonsense", "osm_" + "x" * 300])
async def test_what_is_no_key_is_refused_without_a_question(tmp_path: Path, token: str | None) -> None:
    door, registry, _ = await authenticator(tmp_path)
    with pytest.raises(Unauthenticated):
        await door.caller(token)
    assert registry.asked == 0


async def test_the_operators_key_opens_without_the_registry(tmp_path: Path) -> None:
    door, registry, _ = await authenticator(tmp_path)
    assert (await door.caller(ROOT_KEY)).kind == "root"
    assert registry.asked == 0


def test_a_key_names_itself_and_hides_256_bits() -> None:
    asked: list[int] = []

    def secret(size: int) -> str:
        asked.append(size)
        return "s" * 43

    key = make_key(datetime(2026, 12, 1, tzinfo=UTC), secret)
    assert key.text == f"{key.prefix}_{'s' * 43}"
    assert key.prefix == "osm_" + key.key_id.removeprefix("key_")
    assert asked == [32]
    assert key.digest == digest_of(key.text)


async def test_only_the_digest_of_a_new_key_travels(world: World) -> None:
    async with world.client() as client:
        made = (await client.post("/v1/keys", json={"description": "nightly"})).json()
    (request,) = world.requests(CreateKey)
    assert digest_of(made["key"]) == request.digest
    assert request.workspace == MINE
    assert made["key"].startswith(made["prefix"])
    assert made["key"].removeprefix(made["prefix"]).strip("_") not in request.model_dump_json()


async def test_the_operator_makes_a_workspaces_first_key(world: World) -> None:
    async with world.client(ROOT_KEY) as client:
        made = await client.post("/v1/workspaces/ws_mine/keys", json={})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert world.requests(CreateKey)[0].workspace == "ws_mine"


async def test_a_key_is_not_told_a_second_time(world: World) -> None:
    headers = {"Idempotency-Key": "again"}
    async with world.client() as client:
        first = await client.post("/v1/keys", json={}, headers=headers)
        again = await client.post("/v1/keys", json={}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 409)
    assert "shown then" in again.json()["detail"]
    assert len(world.requests(CreateKey)) == 1


async def test_a_revocation_is_heard_at_once(world: World) -> None:
    async with world.client() as client:
        assert (await client.get("/v1/runs")).status_code == 200
        del world.keys[digest_of(OWNER_KEY)]
        assert (await client.get("/v1/runs")).status_code == 200, "it was just looked up"
        await world.state(
            KeyRevoked(workspace_id=MINE, key_id=KeyId("key_owner"), digest=digest_of(OWNER_KEY))
        )
        async with asyncio.timeout(4):
            while (await client.get("/v1/runs")).status_code != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert len(world.requests(Authenticate)) == 2
