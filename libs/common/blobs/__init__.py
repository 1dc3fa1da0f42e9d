"""The blob store: big things by key. A folder on one machine, S3 in production, the same promises.

Guaranteed: a key holds whole content or does not exist; what is read by reference has the reference's size and SHA-256,
or an error says that it does not.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from libs.common.contracts.blobs import BlobRef
from libs.common.errors import Invalid

CHUNK_BYTES = 1024 * 1024
_KEY = re.compile(r"[A-Za-z0-9._-][A-Za-z0-9._=@+ -]*(/[A-Za-z0-9._-][A-Za-z0-9._=@+ -]*)*")
_MAX_KEY_CHARACTERS = 900
"""S3 allows 1,024 bytes; the rest is for the prefix."""


class BlobDamaged(Exception):
    """What lies under a key is not what was stored: another size or another SHA-256."""


class BlobMissing(Exception):
    """Nothing lies under a key."""


class BlobStore(Protocol):
    """Content by key."""

    async def put_bytes(self, key: str, data: bytes) -> BlobRef:
        """Store bytes under a key."""
        ...

    async def put_file(self, key: str, path: Path) -> BlobRef:
        """Store a file under a key, in bounded memory."""
        ...

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, limit: int) -> BlobRef:
        """Store what comes, in bounded memory; nothing is stored when it fails.

        Raises:
            TooLarge: more than `limit` bytes came.
        """
        ...

    async def get_bytes(self, ref: BlobRef, *, limit: int = 64 * 1024 * 1024) -> bytes:
        """The whole content, checked.

        Raises:
            TooLarge: the content is over `limit` bytes.
            BlobMissing, BlobDamaged: it is not there, or not what was stored.
        """
        ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes `start` to `stop` (exclusive) in chunks, unchecked.

        Raises:
            BlobMissing: it is not there.
        """
        ...

    async def fetch(self, ref: BlobRef, path: Path) -> None:
        """The content as a file that appears whole, checked.

        Raises:
            BlobMissing, BlobDamaged: it is not there, or not what was stored.
        """
        ...

    async def stat(self, key: str) -> BlobRef | None:
        """What lies under a key."""
        ...

    def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix, sorted."""
        ...

    async def delete(self, key: str) -> None:
        """Forget a key; one that holds nothing is no error."""
        ...

    async def delete_prefix(self, prefix: str) -> None:
        """Forget every key that begins so; an empty prefix is refused.

        Raises:
            Invalid: the prefix is empty.
        """
        ...

    async def ping(self) -> None:
        """Raises when the store does not answer."""
        ...


def check_key(key: str) -> str:
    """The key, if it is a relative path of plain names.

    Raises:
        Invalid: it is not.
    """
    if not _KEY.fullmatch(key) or len(key) > _MAX_KEY_CHARACTERS or {"..", "."} & set(key.split("/")):
        raise Invalid(f"{key!r} is not a blob key: plain names with slashes between them")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix, if it names less than everything.

    Raises:
        Invalid: it is empty.
    """
    if not prefix:
        raise Invalid("an empty prefix would delete every blob; name what to delete")
    return prefix


def check_whole(ref: BlobRef, size: int, sha256: str) -> None:
    """Nothing, if size in bytes and digest are those of the reference.

    Raises:
        BlobDamaged: they are not.
    """
    if size != ref.size:
        raise BlobDamaged(f"{ref.key} is not what was stored: {size} bytes instead of {ref.size}")
    if sha256 != ref.sha256:
        raise BlobDamaged(f"{ref.key} is not what was stored: its SHA-256 differs")
