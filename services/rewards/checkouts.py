"""Commits on this machine's disk, as sandboxes see them: unpacked once, whole, read-only in use.

Guaranteed here: a checkout holds exactly what its archive's digest says; no entry lies outside of it and no link leads
out; a half-unpacked one is never seen.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import uuid
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

from libs.common.blobs import BlobDamaged, BlobMissing, BlobStore
from libs.common.contracts.recipes import CodeSnapshot
from libs.common.errors import Invalid

LARGEST_BYTES = 512 * 1024 * 1024
MOST_ENTRIES = 50_000
KEEP_S = 3600.0
"""Seconds after its last use from which a checkout may be removed."""


class Checkouts:
    """Checkouts below one folder, by the digest of their archive."""

    def __init__(self, blobs: BlobStore, folder: Path, now: Callable[[], float]) -> None:
        """`now`: seconds since the epoch, as files have them."""
        self._blobs = blobs
        self._folder = folder
        self._now = now
        self._turns: dict[str, asyncio.Lock] = {}

    async def get(self, code: CodeSnapshot) -> Path:
        """The folder of a commit.

        Raises Invalid when the archive is gone, damaged, or not a tree of plain files.
        """
        digest = code.archive.sha256
        target = self._folder / digest
        async with self._turns.setdefault(digest, asyncio.Lock()):
            if not await asyncio.to_thread(target.is_dir):
                await self._make(code, target)
            await asyncio.to_thread(os.utime, target, (self._now(), self._now()))
        return target

    async def _make(self, code: CodeSnapshot, target: Path) -> None:
        temporary = self._folder / f"{target.name}.{uuid.uuid4().hex}"
        archive = temporary.with_suffix(".tar")
        try:
            await asyncio.to_thread(_open_folder, self._folder)
            await self._blobs.fetch(code.archive, archive)
            await asyncio.to_thread(unpack_tree, archive, temporary)
            await asyncio.to_thread(_move, temporary, target)
        except (BlobMissing, BlobDamaged, tarfile.TarError) as error:
            raise Invalid(
                f"the code of commit {code.commit[:12]} cannot be read: {error}; sync again"
            ) from error
        finally:
            await asyncio.to_thread(_discard, archive, temporary)

    async def prune(self, in_use: Collection[Path]) -> None:
        """Remove checkouts that nobody used for `KEEP_S` seconds and that are not `in_use`."""
        await asyncio.to_thread(self._prune, frozenset(in_use))

    def _prune(self, in_use: frozenset[Path]) -> None:
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            if folder not in in_use and folder.stat().st_mtime < self._now() - KEEP_S:
                shutil.rmtree(folder, ignore_errors=True)


def _open_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _move(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError:
        # Another process unpacked the same archive first: its folder is as good.
        if not target.is_dir():
            raise


def _discard(archive: Path, temporary: Path) -> None:
    archive.unlink(missing_ok=True)
    shutil.rmtree(temporary, ignore_errors=True)


def unpack_tree(archive: Path, target: Path) -> None:
    """Unpack plain files and links that stay inside; readable by everybody, writable by the owner.

    Raises Invalid for any other entry, and for trees that are too large.
    """
    links: list[tuple[Path, str]] = []
    total = 0
    target.mkdir()
    with tarfile.open(archive) as tar:
        for number, entry in enumerate(tar):
            total += entry.size
            if number >= MOST_ENTRIES or total > LARGEST_BYTES:
                raise Invalid(f"the repository is over {MOST_ENTRIES} entries or {LARGEST_BYTES} bytes")
            path = _inside(target, entry.name)
            if entry.issym():
                links.append((path, _link_inside(entry)))
            elif entry.isfile():
                _write(tar, entry, path)
            elif not entry.isdir():
                raise Invalid(f"{entry.name} is neither a file nor a link")
    # Last, so that no file is written through one.
    for path, leads_to in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads_to)
    # Whatever the service's umask: sandboxes may run as another user.
    for folder in [target, *target.rglob("*")]:
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)


def _inside(target: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise Invalid(f"{name!r} is no path inside the repository")
    return target.joinpath(*parts)


def _link_inside(entry: tarfile.TarInfo) -> str:
    leads = os.path.normpath(PurePosixPath(entry.name).parent / entry.linkname)
    if entry.linkname.startswith("/") or leads.split("/")[0] == "..":
        raise Invalid(f"the link {entry.name} leads out of the repository")
    return entry.linkname


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(entry)
    assert content is not None
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if entry.mode & 0o100 else 0o644)
