"""What a blob store promises, over a folder and over S3."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.common.blobs import BlobDamaged, BlobMissing, BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.errors import Invalid, TooLarge

PART_BYTES = 16 * 1024 * 1024
SIZES = pytest.mark.parametrize(
    "size", [0, 1, 1024 * 1024, PART_BYTES, 2 * PART_BYTES + 1], ids=["none", "one", "chunk", "part", "parts"]
)


def content(size: int) -> bytes:
    return os.urandom(min(size, 1024)) * (size // 1024 + 1) if size else b""


def bytes_of(size: int) -> bytes:
    return content(size)[:size]


async def pieces(data: bytes, size: int = 700_001) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read_all(blobs: BlobStore, key: str, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(key, start, stop)])


def beside(folder: Path) -> list[str]:
    """What a fetch left around its target."""
    return [path.name for path in folder.glob("target*")]


def reference(key: str, data: bytes) -> BlobRef:
    return BlobRef(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


@SIZES
async def test_bytes_come_back_whole(blobs: BlobStore, size: int) -> None:
    data = bytes_of(size)
    ref = await blobs.put_bytes("a/b", data)
    assert ref == reference("a/b", data)
    assert await blobs.get_bytes(ref) == data
    assert await read_all(blobs, "a/b") == data
    assert await blobs.stat("a/b") == ref


@SIZES
async def test_a_file_comes_back_whole(blobs: BlobStore, tmp_path: Path, size: int) -> None:
    data = bytes_of(size)
    (tmp_path / "source").write_bytes(data)
    ref = await blobs.put_file("a/b", tmp_path / "source")
    assert ref == reference("a/b", data)
    await blobs.fetch(ref, tmp_path / "new" / "target")
    assert (tmp_path / "new" / "target").read_bytes() == data
    assert await blobs.stat("a/b") == ref


@SIZES
async def test_a_stream_comes_back_whole(blobs: BlobStore, size: int) -> None:
    data = bytes_of(size)
    ref = await blobs.put_stream("a/b", pieces(data), limit=size)
    assert ref == reference("a/b", data)
    assert await read_all(blobs, "a/b") == data
    assert await blobs.stat("a/b") == ref


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 5), (3, None), (10, 11), (999_999, 1_000_000), (5, 5), (7, 3), (2_000_000, None)]
)
async def test_a_range_is_what_a_slice_is(blobs: BlobStore, start: int, stop: int | None) -> None:
    data = bytes_of(1_000_000)
    await blobs.put_bytes("a", data)
    assert await read_all(blobs, "a", start, stop) == data[start:stop]


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES + 1], ids=["small", "parts"])
async def test_a_stream_over_its_limit_leaves_nothing_behind(blobs: BlobStore, size: int) -> None:
    with pytest.raises(TooLarge, match=f"more than {size - 1} bytes"):
        await blobs.put_stream("a/b", pieces(bytes_of(size)), limit=size - 1)
    assert await blobs.stat("a/b") is None
    assert [key async for key in blobs.list("")] == []


async def test_a_stream_that_breaks_leaves_what_was_there_before(blobs: BlobStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + 1)
        raise ConnectionResetError("the sender is gone")

    ref = await blobs.put_bytes("a/b", b"before")
    with pytest.raises(ConnectionResetError):
        await blobs.put_stream("a/b", broken(), limit=2 * PART_BYTES)
    assert await blobs.get_bytes(ref) == b"before"


async def test_a_cancelled_upload_leaves_nothing_behind(blobs: BlobStore) -> None:
    arrived = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + 1)
        arrived.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(blobs.put_stream("a/b", stuck(), limit=2 * PART_BYTES))
    await arrived.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert [key async for key in blobs.list("")] == []


async def test_a_key_is_replaced_as_a_whole(blobs: BlobStore) -> None:
    old = await blobs.put_bytes("a", b"old content")
    new = await blobs.put_bytes("a", b"new")
    assert await blobs.stat("a") == new
    assert await blobs.get_bytes(new) == b"new"
    with pytest.raises(BlobDamaged, match="a is not what was stored: 3 bytes instead of 11"):
        await blobs.get_bytes(old)


async def test_content_of_the_same_size_but_another_digest_is_damage(
    blobs: BlobStore, tmp_path: Path
) -> None:
    ref = await blobs.put_bytes("a", b"right")
    await blobs.put_bytes("a", b"wrong")
    with pytest.raises(BlobDamaged, match="its SHA-256 differs"):
        await blobs.get_bytes(ref)
    with pytest.raises(BlobDamaged, match="its SHA-256 differs"):
        await blobs.fetch(ref, tmp_path / "target")
    assert beside(tmp_path) == []


async def test_content_longer_than_its_reference_is_damage(blobs: BlobStore, tmp_path: Path) -> None:
    await blobs.put_bytes("a", b"content and more")
    ref = reference("a", b"content")
    with pytest.raises(BlobDamaged, match="bytes instead of 7"):
        await blobs.get_bytes(ref)
    with pytest.raises(BlobDamaged, match="bytes instead of 7"):
        await blobs.fetch(ref, tmp_path / "target")


async def test_fetching_replaces_a_file_as_a_whole(blobs: BlobStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"before")
    ref = await blobs.put_bytes("a", b"after")
    await blobs.fetch(ref, target)
    assert target.read_bytes() == b"after"
    assert beside(tmp_path) == ["target"]


async def test_what_is_missing_is_named(blobs: BlobStore, tmp_path: Path) -> None:
    ref = reference("not/there", b"")
    assert await blobs.stat("not/there") is None
    for call in (blobs.get_bytes(ref), blobs.fetch(ref, tmp_path / "x"), read_all(blobs, "not/there")):
        with pytest.raises(BlobMissing, match="no blob not/there"):
            await call
    await blobs.delete("not/there")


async def test_the_folder_of_keys_is_no_blob(blobs: BlobStore) -> None:
    await blobs.put_bytes("a/b", b"1")
    assert await blobs.stat("a") is None
    with pytest.raises(BlobMissing):
        await read_all(blobs, "a")
    await blobs.delete("a")
    assert await blobs.stat("a/b") is not None


async def test_more_than_the_limit_is_not_read_at_once(blobs: BlobStore) -> None:
    ref = await blobs.put_bytes("a", b"12345")
    with pytest.raises(TooLarge, match="a has 5 bytes, more than the 4"):
        await blobs.get_bytes(ref, limit=4)


async def test_keys_are_listed_by_prefix_in_order(blobs: BlobStore) -> None:
    for key in ("runs/2/x", "runs/1/y", "runs/1/x/z", "runs-other", "datasets/1"):
        await blobs.put_bytes(key, b"")
    assert [key async for key in blobs.list("runs/")] == ["runs/1/x/z", "runs/1/y", "runs/2/x"]
    assert [key async for key in blobs.list("runs/1/")] == ["runs/1/x/z", "runs/1/y"]
    assert [key async for key in blobs.list("run")] == ["runs-other", "runs/1/x/z", "runs/1/y", "runs/2/x"]
    assert [key async for key in blobs.list("nothing")] == []
    assert [key async for key in blobs.list("../")] == []


async def test_a_prefix_is_deleted_and_nothing_beside_it(blobs: BlobStore) -> None:
    for key in ("runs/1/x", "runs/1/y/z", "runs/10/x"):
        await blobs.put_bytes(key, b"content")
    await blobs.delete_prefix("runs/1/")
    assert [key async for key in blobs.list("")] == ["runs/10/x"]
    assert await blobs.stat("runs/1/x") is None
    with pytest.raises(Invalid, match="every blob"):
        await blobs.delete_prefix("")


async def test_a_deleted_key_is_free(blobs: BlobStore) -> None:
    await blobs.put_bytes("a", b"1")
    await blobs.delete("a")
    assert await blobs.stat("a") is None
    ref = await blobs.put_bytes("a", b"2")
    assert await blobs.get_bytes(ref) == b"2"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\\b", "a\nb", "ä", " a", "x" * 901]
)
async def test_a_key_that_is_no_plain_path_is_refused(blobs: BlobStore, key: str) -> None:
    with pytest.raises(Invalid, match="is not a blob key"):
        await blobs.put_bytes(key, b"")
    with pytest.raises(Invalid, match="is not a blob key"):
        await blobs.stat(key)
    with pytest.raises(Invalid, match="is not a blob key"):
        await read_all(blobs, key)
    with pytest.raises(Invalid, match="is not a blob key"):
        await blobs.delete(key)


@pytest.mark.parametrize(
    "key", ["a", "a/b.c/d-e_f", "models/mdl_1/model-00001-of-00002.safetensors", "a b/c@d+e=f"]
)
async def test_plain_paths_are_keys(blobs: BlobStore, key: str) -> None:
    ref = await blobs.put_bytes(key, b"1")
    assert await blobs.get_bytes(ref) == b"1"
    assert [found async for found in blobs.list("")] == [key]


async def test_writers_of_one_key_leave_the_content_of_one_of_them(blobs: BlobStore) -> None:
    contents = [bytes([number]) * 1000 for number in range(8)]
    await asyncio.gather(*(blobs.put_bytes("a", each) for each in contents))
    ref = await blobs.stat("a")
    assert ref is not None
    assert await blobs.get_bytes(ref) in contents


async def test_a_store_answers(blobs: BlobStore) -> None:
    await blobs.ping()
