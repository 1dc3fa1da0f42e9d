"""Parcels: a model that travels inside its message when small, through the blob store when large."""

from __future__ import annotations

import json

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import INLINE_LIMIT_BYTES, Parcel, ParcelT


async def pack(blobs: BlobStore, model: ParcelT, key: str) -> Parcel[ParcelT]:
    """The model inline up to `INLINE_LIMIT_BYTES`, else stored under `key`."""
    text = model.model_dump_json()
    if len(text.encode()) <= INLINE_LIMIT_BYTES:
        return Parcel(inline=json.loads(text))
    return Parcel(blob=await blobs.put_bytes(key, text.encode()))


async def unpack(blobs: BlobStore, parcel: Parcel[ParcelT], kind: type[ParcelT]) -> ParcelT:
    """The model in a parcel.

    Raises:
        ValueError: the parcel is empty.
    """
    if parcel.blob is not None:
        return kind.model_validate_json(await blobs.get_bytes(parcel.blob))
    if parcel.inline is None:
        raise ValueError("the parcel is empty")
    return kind.model_validate(parcel.inline)
