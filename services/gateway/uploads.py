"""A file on its way from a client into the blob store, in bounded memory.

Guaranteed: what is announced to the registry is whole and has the digest that the client named; an upload that breaks
off, is too large or has another digest leaves nothing behind. Two uploads to one dataset never touch each other's bytes:
each has a key of its own, and the registry takes the first.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from libs.common.blobs import CHUNK_BYTES, BlobStore
from libs.common.contracts.datasets import CompleteUpload, DatasetView, GetDataset
from libs.common.errors import Conflict, FieldError, Invalid, OsmosisError, TooLarge, Unavailable
from libs.common.identifiers import DatasetId
from services.gateway.asking import Asker
from services.gateway.problems import TooSlow, UnsupportedMedia

LIMIT_BYTES = 5 * 1024**3
IDLE_S = 60.0
_HEX = re.compile("[0-9a-fA-F]{64}")
_STRUCTURED = re.compile(r"sha-256=:([A-Za-z0-9+/=]+):")


async def upload(
    request: Request, ask: Asker, blobs: BlobStore, dataset_id: DatasetId, *, limit: int = LIMIT_BYTES
) -> DatasetView:
    """Store the body of a request as a dataset's file and announce it.

    Raises:
        OsmosisError: the dataset takes no file, the body is too large, broke off or has another digest.
    """
    expected = expected_digest(request.headers)
    _check_announced(request.headers, limit)
    dataset = await ask(GetDataset(dataset_id=dataset_id))
    if dataset.status not in ("pending", "uploading"):
        raise Conflict(f"dataset {dataset_id} is {dataset.status}: it has its file; make another dataset")
    key = f"uploads/{dataset.id}/{secrets.token_hex(8)}"
    content = await blobs.put_stream(key, _checked(_arriving(request), expected, limit), limit=limit)
    try:
        return await ask(CompleteUpload(dataset_id=dataset.id, content=content))
    except Unavailable:
        # The announcement may have arrived although its answer did not: the registry may be reading the blob.
        raise
    except OsmosisError:
        await blobs.delete(key)
        raise


def expected_digest(headers: Headers) -> str | None:
    """SHA-256 in hex that the client says the body has; None when it says nothing.

    `Content-Digest: sha-256=:<base64>:` (RFC 9530), or `X-Content-SHA256: <hex>`.

    Raises:
        Invalid: a header that is neither.
    """
    given = headers.get("x-content-sha256")
    if given is not None:
        if not _HEX.fullmatch(given):
            raise _bad_header("X-Content-SHA256", "64 hexadecimal digits")
        return given.lower()
    structured = headers.get("content-digest")
    if structured is None:
        return None
    found = _STRUCTURED.search(structured)
    try:
        digest = base64.b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise _bad_header("Content-Digest", "sha-256=:<base64 of the digest>:")
    return digest.hex()


def _bad_header(name: str, wanted: str) -> Invalid:
    return Invalid(f"{name} is not readable", fields=[FieldError(f"header.{name}", f"expected: {wanted}")])


def _check_announced(headers: Headers, limit: int) -> None:
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    if headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMedia("send the file as it is, without Content-Encoding")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"a dataset's file may have {limit} bytes; split it into several datasets")


async def _arriving(request: Request) -> AsyncGenerator[bytes]:
    """The body in chunks of about a mebibyte: the server hands over far smaller ones."""
    waiting = bytearray()
    parts = request.stream()
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                part = await anext(parts, None)
        except TimeoutError:
            raise TooSlow(f"nothing arrived for {IDLE_S:.0f} s; upload the file again") from None
        except ClientDisconnect:
            raise Invalid("the upload broke off; upload the file again") from None
        if part is None:
            break
        waiting += part
        if len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def _checked(parts: AsyncIterator[bytes], expected: str | None, limit: int) -> AsyncGenerator[bytes]:
    digest = hashlib.sha256()
    size = 0
    async for part in parts:
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if expected is not None:
            digest.update(part)
        yield part
    if expected is not None and digest.hexdigest() != expected:
        raise Invalid(
            f"the file that arrived has SHA-256 {digest.hexdigest()}, not the one announced; upload it again",
            fields=[FieldError("header.Content-Digest", "the digest of the file as it is sent")],
        )
