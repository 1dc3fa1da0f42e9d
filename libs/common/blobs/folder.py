"""Blobs in a folder: a file a blob, written elsewhere, flushed to the disk and renamed into its place.

The digest of each lies in a tree of its own, with the number of the file (its inode) that it belongs to: a digest that a
crash or a race left beside another content is known for what it is, and computed again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from libs.common.blobs import CHUNK_BYTES, BlobMissing, check_key, check_prefix, check_whole
from libs.common.contracts.blobs import BlobRef
from libs.common.errors import Invalid, TooLarge

_TEMPORARY = ".tmp"
_ABANDONED_S = 24 * 3600
"""An incoming file that nobody has written to for so long was left by a crash."""
ResultT = TypeVar("ResultT")
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class FolderBlobs:
    """The blob store of one machine."""

    def __init__(self, root: Path) -> None:
        self._content = root / "content"
        self._digests = root / "digests"
        self._incoming = root / "incoming"
        for folder in (self._content, self._digests, self._incoming):
            folder.mkdir(parents=True, exist_ok=True)
        for left in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    left.unlink()

    async def put_bytes(self, key: str, data: bytes) -> BlobRef:
        """Store bytes under a key."""

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self.put_stream(key, once(), limit=len(data))

    async def put_file(self, key: str, path: Path) -> BlobRef:
        """Store a file under a key."""
        return await in_thread(self._copy_in, check_key(key), path)

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
            target = await in_thread(temporary.open, "wb")
            with target:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limit:
                        raise TooLarge(f"more than {limit} bytes came; send a smaller file")
                    digest.update(chunk)
                    await in_thread(target.write, chunk)
                await in_thread(_flush, target)
            return await in_thread(self._place, key, temporary, size, digest.hexdigest())
        finally:
            temporary.unlink(missing_ok=True)

    async def get_bytes(self, ref: BlobRef, *, limit: int = 64 * 1024 * 1024) -> bytes:
        """The whole content, checked."""
        if ref.size > limit:
            raise TooLarge(f"{ref.key} has {ref.size} bytes, more than the {limit} that are read at once")
        return await asyncio.to_thread(self._read_checked, ref)

    def _read_checked(self, ref: BlobRef) -> bytes:
        try:
            with self._path(ref.key).open("rb") as source:
                # One byte more than expected shows that there is more, without reading all of it.
                data = source.read(ref.size + 1)
                size = os.fstat(source.fileno()).st_size
        except _NO_FILE:
            raise BlobMissing(f"no blob {ref.key}") from None
        check_whole(ref, size, hashlib.sha256(data).hexdigest())
        return data

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """A range in chunks."""
        try:
            source = await asyncio.to_thread(self._path(key).open, "rb")
        except _NO_FILE:
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
        await in_thread(self._copy_out, ref, path)

    def _copy_out(self, ref: BlobRef, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            shutil.copyfile(self._path(ref.key), temporary)
            check_whole(ref, temporary.stat().st_size, file_digest(temporary))
            temporary.rename(path)
        except _NO_FILE:
            raise BlobMissing(f"no blob {ref.key}") from None
        finally:
            temporary.unlink(missing_ok=True)

    async def stat(self, key: str) -> BlobRef | None:
        """What lies under a key."""
        return await asyncio.to_thread(self._stat, key)

    def _stat(self, key: str) -> BlobRef | None:
        path = self._path(key)
        try:
            if not path.is_file():
                return None
            entry = path.stat()
            noted = self._digest(key)
            sha256, _, number = noted.read_text().partition(" ") if noted.is_file() else ("", "", "")
            if number != str(entry.st_ino):
                sha256 = file_digest(path)
        except _NO_FILE:
            return None
        return BlobRef(key=key, size=entry.st_size, sha256=sha256)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix."""
        for key in await asyncio.to_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> list[str]:
        folder = self._content / prefix.rpartition("/")[0]
        if not folder.resolve().is_relative_to(self._content.resolve()):
            return []
        paths = (path for path in folder.rglob("*") if path.is_file())
        keys = (path.relative_to(self._content).as_posix() for path in paths)
        return sorted(key for key in keys if key.startswith(prefix))

    async def delete(self, key: str) -> None:
        """Forget a key."""
        await asyncio.to_thread(self._delete, key)

    def _delete(self, key: str) -> None:
        for path in (self._path(key), self._digest(key)):
            with suppress(*_NO_FILE):
                path.unlink()

    async def delete_prefix(self, prefix: str) -> None:
        """Forget every key that begins so."""
        for key in await asyncio.to_thread(self._keys, check_prefix(prefix)):
            await self.delete(key)

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
        path, digest = self._path(key), self._digest(key)
        noted = self._temporary()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            digest.parent.mkdir(parents=True, exist_ok=True)
            noted.write_text(f"{sha256} {temporary.stat().st_ino}")
            noted.rename(digest)
            temporary.rename(path)
            _flush_folder(path.parent)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            raise Invalid(f"{key!r} cannot be stored: one key is the folder of another") from None
        finally:
            noted.unlink(missing_ok=True)
        return BlobRef(key=key, size=size, sha256=sha256)


async def in_thread(call: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """A blocking call that has ended when this ends, also by cancellation: whoever cleans up after it comes later."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            # A second cancellation does not end the thread either.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        work.exception()
        raise


def _flush(target: BinaryIO) -> None:
    target.flush()
    os.fsync(target.fileno())


def _flush_folder(folder: Path) -> None:
    """Bring a rename to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
