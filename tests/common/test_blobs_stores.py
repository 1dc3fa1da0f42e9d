"""What only one of the stores can do wrong: a folder's leftovers and digests, S3's parts and outages."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import boto3
import pytest

from libs.common.blobs import BlobDamaged
from libs.common.blobs.factory import open_blobs
from libs.common.blobs.folder import FolderBlobs
from libs.common.blobs.s3 import PART_BYTES, S3Blobs
from libs.common.errors import Invalid
from libs.common.settings import Settings


async def test_a_digest_that_belongs_to_another_file_is_not_believed(tmp_path: Path) -> None:
    """As a crash between the digest and the content leaves it."""
    blobs = FolderBlobs(tmp_path)
    await blobs.put_bytes("a", b"old")
    old_digest = (tmp_path / "digests" / "a").read_text()
    new = await blobs.put_bytes("a", b"new")
    (tmp_path / "digests" / "a").write_text(old_digest)
    assert await blobs.stat("a") == new
    (tmp_path / "digests" / "a").unlink()
    assert await blobs.stat("a") == new


async def test_what_a_crash_left_half_written_is_swept_away_after_a_day(tmp_path: Path) -> None:
    FolderBlobs(tmp_path)
    old, new = tmp_path / "incoming" / "old.tmp", tmp_path / "incoming" / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, time.time() - 2 * 24 * 3600))
    FolderBlobs(tmp_path)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
async def test_a_key_cannot_be_the_folder_of_another(tmp_path: Path, first: str, second: str) -> None:
    blobs = FolderBlobs(tmp_path)
    ref = await blobs.put_bytes(first, b"1")
    with pytest.raises(Invalid, match="one key is the folder of another"):
        await blobs.put_bytes(second, b"2")
    assert await blobs.get_bytes(ref) == b"1"
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_a_folder_that_is_gone_does_not_answer(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    (tmp_path / "content").rmdir()
    with pytest.raises(FileNotFoundError):
        await blobs.ping()


async def test_a_failed_upload_leaves_no_parts_in_s3(s3_settings: Settings) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + 1)
        raise ConnectionResetError

    blobs = open_blobs(s3_settings)
    with pytest.raises(ConnectionResetError):
        await blobs.put_stream("a", broken(), limit=2 * PART_BYTES)
    client = boto3.client("s3", endpoint_url=s3_settings.s3_endpoint)
    bucket = s3_settings.blob_url.split("/")[2]
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


async def test_s3_keeps_the_digest_with_the_object_and_everything_below_the_prefix(
    s3_settings: Settings, tmp_path: Path
) -> None:
    blobs = open_blobs(s3_settings)
    (tmp_path / "file").write_bytes(b"x" * (PART_BYTES + 1))
    ref = await blobs.put_file("a", tmp_path / "file")
    client = boto3.client("s3", endpoint_url=s3_settings.s3_endpoint)
    head = client.head_object(Bucket=s3_settings.blob_url.split("/")[2], Key="below/here/a")
    assert head["Metadata"] == {"sha256": ref.sha256}


async def test_a_file_that_changes_while_it_is_stored_is_not_stored(
    s3_settings: Settings, tmp_path: Path
) -> None:
    class Changing(S3Blobs):
        async def run(self, call):  # type: ignore[no-untyped-def]
            # Between the digest and the end of the upload: when the first part is on its way.
            path.write_bytes(b"y" * (PART_BYTES + 1024 * 1024 + 1))
            return await super().run(call)

    path = tmp_path / "file"
    path.write_bytes(b"x" * (PART_BYTES + 1024 * 1024 + 1))
    _, _, bucket, prefix = s3_settings.blob_url.split("/", 3)
    with pytest.raises(BlobDamaged, match="changed while it was read"):
        await Changing(bucket, prefix, s3_settings.s3_endpoint).put_file("a", path)
    assert await open_blobs(s3_settings).stat("a") is None


async def test_a_bucket_that_is_not_there_does_not_answer(s3_settings: Settings) -> None:
    elsewhere = s3_settings.model_copy(update={"blob_url": "s3://no-such-bucket"})
    with pytest.raises(Exception, match=r"404|Not Found"):
        await open_blobs(elsewhere).ping()


def test_an_address_of_neither_kind_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"OSMOSIS_BLOB_URL 'ftp://x/': use file:///folder or s3://bucket/prefix"
    ):
        open_blobs(Settings(blob_url="ftp://x/"))
