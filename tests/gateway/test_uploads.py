"""Files into the blob store: bounded, checked, and nothing left of what went wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from libs.common.contracts.datasets import CompleteUpload, GetDataset
from libs.common.contracts.requests import Caller
from libs.common.errors import Conflict, Invalid, TooLarge, Unavailable
from libs.common.platform import Platform
from services.gateway.asking import Asker
from services.gateway.uploads import expected_digest, upload
from tests.gateway.samples import DATASET, DATASET_VIEW, MINE
from tests.gateway.worlds import OWNER_KEY, World

ROWS = b'{"user_prompt": "1 + 1?", "ground_truth": "2"}\n' * 1000
DIGEST = hashlib.sha256(ROWS)
PATH = "/v1/datasets/ds_1/content"


async def stored(world: World) -> list[str]:
    assert world.blobs is not None
    return [key async for key in world.blobs.list("")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Content-SHA256": DIGEST.hexdigest().upper()},
        {"Content-Digest": f"sha-256=:{base64.b64encode(DIGEST.digest()).decode()}:"},
        {"Content-Digest": f"sha-512=:AAAA:, sha-256=:{base64.b64encode(DIGEST.digest()).decode()}:"},
    ],
)
async def test_a_file_is_stored_whole_and_announced(world: World, headers: dict[str, str]) -> None:
    async with world.client() as client:
        answer = await client.put(PATH, content=ROWS, headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (200, "processing")
    (announced,) = world.requests(CompleteUpload)
    assert announced.content.key.startswith("uploads/ds_1/")
    assert (announced.content.size, announced.content.sha256) == (len(ROWS), DIGEST.hexdigest())
    assert world.blobs is not None
    assert await world.blobs.get_bytes(announced.content) == ROWS


async def test_a_file_of_another_digest_leaves_nothing(world: World) -> None:
    async with world.client() as client:
        answer = await client.put(PATH, content=ROWS, headers={"X-Content-SHA256": "0" * 64})
    assert answer.status_code == 422
    assert DIGEST.hexdigest() in answer.json()["detail"]
    assert await stored(world) == []
    assert world.requests(CompleteUpload) == []


@pytest.mark.parametrize(
    "headers",
    [{"X-Content-SHA256": "abc"}, {"Content-Digest": "md5=:AAAA:"}, {"Content-Digest": "sha-256=:AAAA:"}],
)
async def test_a_digest_that_cannot_be_read_is_refused(world: World, headers: dict[str, str]) -> None:
    async with world.client() as client:
        answer = await client.put(PATH, content=ROWS, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == f"header.{next(iter(headers))}"


async def test_an_announced_size_over_the_limit_is_refused_before_the_body(world: World) -> None:
    address = urlsplit(world.address)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"PUT {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER_KEY}\r\n"
    writer.write(f"{head}Content-Length: {6 * 1024**3}\r\n\r\n".encode())
    async with asyncio.timeout(10):
        status = await reader.readline()
    writer.close()
    assert status.split()[1] == b"413"
    assert world.requests(GetDataset) == []


async def test_a_dataset_that_has_its_file_takes_no_other(world: World) -> None:
    world.scripted[GetDataset] = lambda _: DATASET_VIEW.model_copy(update={"status": "uploaded"})
    async with world.client() as client:
        answer = await client.put(PATH, content=ROWS)
    assert answer.status_code == 409
    assert await stored(world) == []


async def test_the_loser_of_two_uploads_leaves_nothing(world: World) -> None:
    def refuse(_: Any) -> Any:
        raise Conflict("another upload came first")

    world.scripted[CompleteUpload] = refuse
    async with world.client() as client:
        assert (await client.put(PATH, content=ROWS)).status_code == 409
    assert await stored(world) == []


async def test_a_file_whose_announcement_may_have_arrived_stays(world: World) -> None:
    def fail(_: Any) -> Any:
        raise Unavailable("no answer in time")

    world.scripted[CompleteUpload] = fail
    async with world.client() as client:
        assert (await client.put(PATH, content=ROWS)).status_code == 503
    assert len(await stored(world)) == 1


async def test_a_compressed_body_is_refused(world: World) -> None:
    async with world.client() as client:
        answer = await client.put(PATH, content=ROWS, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415


def asker(platform: Platform) -> Asker:
    return Asker(platform, Caller(kind="key", workspace_id=MINE, key_id="key_owner"))


def arriving(messages: list[dict[str, Any]]) -> Request:
    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return Request({"type": "http", "method": "PUT", "path": PATH, "headers": []}, receive)


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_over_the_limit_leaves_nothing(world: World) -> None:
    platform = world.services["gateway"].platform
    request = arriving([part(b"x" * 60), part(b"x" * 60, more=False)])
    with pytest.raises(TooLarge):
        await upload(request, asker(platform), platform.blobs, DATASET, limit=100)
    assert await stored(world) == []


async def test_an_upload_that_breaks_off_leaves_nothing(world: World) -> None:
    platform = world.services["gateway"].platform
    request = arriving([part(ROWS), {"type": "http.disconnect"}])
    with pytest.raises(Invalid, match="broke off"):
        await upload(request, asker(platform), platform.blobs, DATASET)
    assert await stored(world) == []


async def test_no_more_than_chunks_are_kept_in_memory(world: World) -> None:
    """The blob store sees chunks of about a mebibyte, whatever the server hands over."""
    platform = world.services["gateway"].platform
    sizes: list[int] = []

    class Watching:
        async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, limit: int) -> Any:
            async def watched() -> AsyncIterator[bytes]:
                async for chunk in chunks:
                    sizes.append(len(chunk))
                    yield chunk

            return await platform.blobs.put_stream(key, watched(), limit=limit)

    small = [part(b"x" * 65_536) for _ in range(100)]
    request = arriving([*small, part(b"", more=False)])
    await upload(request, asker(platform), Watching(), DATASET)  # type: ignore[arg-type]
    assert sum(sizes) == 100 * 65_536
    assert max(sizes) < 2 * 1024 * 1024
    assert len(sizes) == 7


def test_no_digest_is_expected_where_none_is_named() -> None:
    assert expected_digest(Headers({})) is None
