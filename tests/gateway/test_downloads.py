"""Files out of the blob store: whole, in ranges, and not at all where the client has them."""

from __future__ import annotations

import hashlib

import pytest

from libs.common.contracts.blobs import ArtifactFile, BlobRef
from libs.common.contracts.models import ListModelFiles, ModelFiles
from services.gateway.downloads import wanted_range
from services.gateway.problems import RangeNotSatisfiable
from tests.gateway.worlds import World

CONTENT = bytes(range(256)) * 8192
PATH = "/v1/models/mdl_1/files/sub/model.safetensors"


async def exported(world: World) -> str:
    """A model with one file; answers its ETag."""
    assert world.blobs is not None
    blob = await world.blobs.put_bytes("exports/mdl_1/model", CONTENT)
    world.scripted[ListModelFiles] = lambda _: ModelFiles(
        files=[ArtifactFile(path="sub/model.safetensors", blob=blob)]
    )
    return f'"{blob.sha256}"'


async def test_a_file_is_streamed_with_its_size_and_digest(world: World) -> None:
    etag = await exported(world)
    async with world.client() as client:
        answer = await client.get(PATH)
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["etag"] == etag == f'"{hashlib.sha256(CONTENT).hexdigest()}"'
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''model.safetensors"


async def test_a_download_goes_on_where_it_broke_off(world: World) -> None:
    etag = await exported(world)
    async with world.client() as client:
        rest = await client.get(PATH, headers={"Range": "bytes=1000000-", "If-Range": etag})
        changed = await client.get(PATH, headers={"Range": "bytes=1000000-", "If-Range": '"older"'})
    assert (rest.status_code, rest.content) == (206, CONTENT[1_000_000:])
    assert rest.headers["content-range"] == f"bytes 1000000-{len(CONTENT) - 1}/{len(CONTENT)}"
    assert (changed.status_code, changed.content) == (200, CONTENT)


async def test_a_client_that_has_the_file_gets_none(world: World) -> None:
    etag = await exported(world)
    async with world.client() as client:
        answer = await client.get(PATH, headers={"If-None-Match": f'"other", {etag}'})
    assert (answer.status_code, answer.content) == (304, b"")


async def test_a_range_behind_the_end_and_an_unknown_file_are_problems(world: World) -> None:
    await exported(world)
    async with world.client() as client:
        behind = await client.get(PATH, headers={"Range": f"bytes={len(CONTENT)}-"})
        unknown = await client.get("/v1/models/mdl_1/files/..%2F..%2Fsecret.key")
        other = await client.get("/v1/models/mdl_1/files/other.safetensors")
    assert (behind.status_code, behind.json()["type"]) == (416, "urn:osmosis:problem:range_not_satisfiable")
    assert unknown.status_code == 404
    assert other.status_code == 404


async def test_a_lost_blob_is_said_before_the_answer_begins(world: World) -> None:
    gone = BlobRef(key="exports/mdl_1/gone", size=3, sha256="0" * 64)
    world.scripted[ListModelFiles] = lambda _: ModelFiles(
        files=[ArtifactFile(path="sub/model.safetensors", blob=gone)]
    )
    async with world.client() as client:
        assert (await client.get(PATH)).status_code == 503


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-9", (0, 10)),
        ("bytes=90-", (90, 100)),
        ("bytes=90-500", (90, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-500", (0, 100)),
        ("bytes=99-99", (99, 100)),
        ("bytes=9-0", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("rows=0-1", None),
    ],
)
def test_ranges(header: str | None, expected: tuple[int, int] | None) -> None:
    assert wanted_range(header, 100) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_without_a_byte_is_refused(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        wanted_range(header, 100)
