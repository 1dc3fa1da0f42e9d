"""Blobs in a folder: a file a blob, written beside its place and renamed into it, its digest in a tree of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from libs.common.blobs import CHUNK_BYTES, BlobDamaged, BlobMissing, check_key
from libs.common.contracts.blobs import BlobRef
from libs.common.errors import TooLarge

_TEMPORARY = ".tmp"


class FolderBlobs:
    """The blob store of one machine."""

    def __init__(self, root: Path) -> None:
        self._content = root / "content"
        self._digests = root / "digests"
        self._incoming = root / "incoming"
        for folder in (self._content, self._digests, self._incoming):
            folder.mkdir(parents=True, exist_ok=True)

    async def put_bytes(self, key: str, data: bytes) -> BlobRef:
        """Store bytes under a key."""

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self.put_stream(key, once(), limit=len(data))

    async def put_file(self, key: str, path: Path) -> BlobRef:
        """Store a file under a key."""
        return await asyncio.to_thread(self._copy_in, check_key(key), path)

    def _copy_in(self, key: str, path: Path) -> BlobRef:
        temporary = self._temporary()
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("rb") as source, temporary.open("wb") as target:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                _flush(target)
            return self._place(key, temporary, size, digest.hexdigest())
        finally:
            temporary.unlink(missing_ok=True)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, limit: int) -> BlobRef:
        """Store what comes."""
        check_key(key)
        temporary = self._temporary()
        digest, size = hashlib.sha256(), 0
        try:
            target = await asyncio.to_thread(temporary.open, "wb")
            with target:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limit:
                        raise TooLarge(f"more than {limit} bytes came; send a smaller file")
                    digest.update(chunk)
                    await asyncio.to_thread(target.write, chunk)
                await asyncio.to_thread(_flush, target)
            return await asyncio.to_thread(self._place, key, temporary, size, digest.hexdigest())
        finally:
            temporary.unlink(missing_ok=True)

    async def get_bytes(self, ref: BlobRef, *, limit: int = 64 * 1024 * 1024) -> bytes:
        """The whole content, checked."""
        if ref.size > limit:
            raise TooLarge(f"{ref.key} has {ref.size} bytes, more than the {limit} that are read at once")
        return await asyncio.to_thread(self._read_checked, ref)

    def _read_checked(self, ref: BlobRef) -> bytes:
        try:
            data = self._path(ref.key).read_bytes()
        except FileNotFoundError:
            raise BlobMissing(f"no blob {ref.key}") from None
        if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobDamaged(f"{ref.key} is not what was stored: size or SHA-256 differ")
        return data

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """A range in chunks."""
        try:
            source = await asyncio.to_thread(self._path(key).open, "rb")
        except FileNotFoundError:
            raise BlobMissing(f"no blob {key}") from None
        with source:
            source.seek(start)
            left = stop - start if stop is not None else None
            while left is None or left > 0:
                size = CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)
                chunk = await asyncio.to_thread(source.read, size)
                if not chunk:
                    return
                left = None if left is None else left - len(chunk)
                yield chunk

    async def fetch(self, ref: BlobRef, path: Path) -> None:
        """The content as a file, checked."""
        await asyncio.to_thread(self._copy_out, ref, path)

    def _copy_out(self, ref: BlobRef, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            shutil.copyfile(self._path(ref.key), temporary)
            if temporary.stat().st_size != ref.size or file_digest(temporary) != ref.sha256:
                raise BlobDamaged(f"{ref.key} is not what was stored: size or SHA-256 differ")
            temporary.rename(path)
        except FileNotFoundError:
            raise BlobMissing(f"no blob {ref.key}") from None
        finally:
            temporary.unlink(missing_ok=True)

    async def stat(self, key: str) -> BlobRef | None:
        """What lies under a key."""
        path = self._path(key)
        try:
            size, sha256 = path.stat().st_size, self._digest(key).read_text()
        except FileNotFoundError:
            return None
        return BlobRef(key=key, size=size, sha256=sha256)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix."""
        for key in await asyncio.to_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        for path in self._content.rglob("*"):
            key = path.relative_to(self._content).as_posix()
            if key.startswith(prefix) and path.is_file():
                found.append(key)
        return sorted(found)

    async def delete(self, key: str) -> None:
        """Forget a key."""
        path = self._path(key)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        await asyncio.to_thread(self._digest(key).unlink, missing_ok=True)

    async def ping(self) -> None:
        """Raises when the folder is gone."""
        await asyncio.to_thread(os.stat, self._content)

    def _path(self, key: str) -> Path:
        return self._content / check_key(key)

    def _digest(self, key: str) -> Path:
        return self._digests / check_key(key)

    def _temporary(self) -> Path:
        return self._incoming / f"{uuid.uuid4().hex}{_TEMPORARY}"

    def _place(self, key: str, temporary: Path, size: int, sha256: str) -> BlobRef:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = self._digest(key)
        digest.parent.mkdir(parents=True, exist_ok=True)
        digest.write_text(sha256)
        temporary.rename(path)
        return BlobRef(key=key, size=size, sha256=sha256)


def _flush(target: BinaryIO) -> None:
    target.flush()
    os.fsync(target.fileno())


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
