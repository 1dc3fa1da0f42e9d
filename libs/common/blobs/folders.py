"""Folders in the blob store: parts first, the manifest last. A folder without its manifest does not exist."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import uuid
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import ArtifactFile, ArtifactManifest, BlobRef
from libs.common.errors import Invalid

_PARALLEL = 4
MANIFEST = "manifest.json"
ResultT = TypeVar("ResultT")


async def upload_folder(
    blobs: BlobStore, folder: Path, prefix: str, *, kind: str, attributes: dict[str, Any] | None = None
) -> BlobRef:
    """Store a folder's files below `prefix/` and answer the reference of its manifest.

    Raises:
        Invalid: a file's name is no blob key, or is the manifest's.
    """
    places = asyncio.Semaphore(_PARALLEL)

    async def upload(path: Path) -> ArtifactFile:
        name = path.relative_to(folder).as_posix()
        async with places:
            return ArtifactFile(path=name, blob=await blobs.put_file(f"{prefix}/{name}", path))

    paths = await asyncio.to_thread(lambda: sorted(path for path in folder.rglob("*") if path.is_file()))
    if folder / MANIFEST in paths:
        raise Invalid(f"the folder has a {MANIFEST} of its own: rename it")
    files = await _all(upload(path) for path in paths)
    manifest = ArtifactManifest(kind=kind, files=files, attributes=attributes or {})
    return await blobs.put_bytes(f"{prefix}/{MANIFEST}", manifest.model_dump_json().encode())


async def read_manifest(blobs: BlobStore, ref: BlobRef) -> ArtifactManifest:
    """The manifest that a reference names."""
    return ArtifactManifest.model_validate_json(await blobs.get_bytes(ref))


async def download_folder(blobs: BlobStore, ref: BlobRef, cache: Path, *, only: tuple[str, ...] = ()) -> Path:
    """The folder of a manifest below `cache`, whole and checked; one that lies there already is used.

    `only`: file names to fetch, all when empty. The folder is named by the manifest's digest, so it never goes stale.

    Raises:
        BlobMissing, BlobDamaged: a part is not there, or not what was stored; nothing is left in the cache.
    """
    suffix = f"-{hashlib.sha256(chr(0).join(sorted(only)).encode()).hexdigest()[:16]}" if only else ""
    target = cache / f"{ref.sha256}{suffix}"
    if await asyncio.to_thread(target.is_dir):
        return target
    manifest = await read_manifest(blobs, ref)
    temporary = cache / f"{ref.sha256}.{uuid.uuid4().hex}.tmp"
    places = asyncio.Semaphore(_PARALLEL)

    async def fetch(file: ArtifactFile) -> None:
        async with places:
            await blobs.fetch(file.blob, _inside(temporary, file.path))

    try:
        await asyncio.to_thread(temporary.mkdir, parents=True)
        await _all(fetch(file) for file in manifest.files if not only or file.path in only)
        await asyncio.to_thread(_move, temporary, target)
    finally:
        await asyncio.to_thread(shutil.rmtree, temporary, True)
    return target


async def _all(works: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """The results in order; the first failure ends the others and is raised as it is."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _move(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError:
        # Somebody else brought the same folder first: theirs is as good.
        if not target.is_dir():
            raise


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"the manifest names a file outside of its folder: {name}")
    return path
