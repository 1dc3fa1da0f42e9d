"""Parcels: inline up to the limit, through the blob store above it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from libs.common.blobs import BlobDamaged
from libs.common.blobs.folder import FolderBlobs
from libs.common.contracts.blobs import INLINE_LIMIT_BYTES, Parcel
from libs.common.parcels import pack, unpack


class Note(BaseModel):
    text: str


FRAME_BYTES = len(Note(text="").model_dump_json())


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path)


@pytest.mark.parametrize(
    ("text", "inline"),
    [
        ("", True),
        ("x" * (INLINE_LIMIT_BYTES - FRAME_BYTES), True),
        ("x" * (INLINE_LIMIT_BYTES - FRAME_BYTES + 1), False),
        ("ü" * (INLINE_LIMIT_BYTES // 2), False),
    ],
    ids=["empty", "at the limit", "over the limit", "over the limit in bytes, not in characters"],
)
async def test_a_parcel_opens_to_what_was_packed(blobs: FolderBlobs, text: str, inline: bool) -> None:
    parcel = await pack(blobs, Note(text=text), "parcels/1")
    assert (parcel.inline is not None, parcel.blob is None) == (inline, inline)
    travelled = Parcel[Note].model_validate_json(parcel.model_dump_json())
    assert await unpack(blobs, travelled, Note) == Note(text=text)
    assert len([key async for key in blobs.list("")]) == (0 if inline else 1)


async def test_a_parcel_whose_blob_was_changed_does_not_open(blobs: FolderBlobs) -> None:
    parcel = await pack(blobs, Note(text="x" * INLINE_LIMIT_BYTES), "parcels/1")
    await blobs.put_bytes("parcels/1", b"{}")
    with pytest.raises(BlobDamaged):
        await unpack(blobs, parcel, Note)


async def test_an_empty_parcel_does_not_open(blobs: FolderBlobs) -> None:
    with pytest.raises(ValueError, match="the parcel is empty"):
        await unpack(blobs, Parcel[Note](), Note)
