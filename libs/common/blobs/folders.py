"""Folders in the blob store: parts first, the manifest last. A folder without its manifest does not exist."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Any

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import ArtifactFile, ArtifactManifest, BlobRef

_PARALLEL = 4
MANIFEST = "manifest.json"


async def upload_folder(
    blobs: BlobStore, folder: Path, prefix: str, *, kind: str, attributes: dict[str, Any] | None = None
) -> BlobRef:
    """Store a folder's files below `prefix/` and answer the reference of its manifest."""
    places = asyncio.Semaphore(_PARALLEL)

    async def upload(path: Path) -> ArtifactFile:
        name = path.relative_to(folder).as_posix()
        async with places:
            return ArtifactFile(path=name, blob=await blobs.put_file(f"{prefix}/{name}", path))

    paths = await asyncio.to_thread(lambda: sorted(path for path in folder.rglob("*") if path.is_file()))
    files = await asyncio.gather(*(upload(path) for path in paths))
    manifest = ArtifactManifest(kind=kind, files=list(files), attributes=attributes or {})
    return await blobs.put_bytes(f"{prefix}/{MANIFEST}", manifest.model_dump_json().encode())


async def read_manifest(blobs: BlobStore, ref: BlobRef) -> ArtifactManifest:
    """The manifest that a reference names."""
    return ArtifactManifest.model_validate_json(await blobs.get_bytes(ref))


async def download_folder(blobs: BlobStore, ref: BlobRef, cache: Path, *, only: tuple[str, ...] = ()) -> Path:
    """The folder of a manifest below `cache`, whole and checked; one that lies there already is used.

    `only`: file names to fetch, all when empty. The folder is named by the manifest's digest, so it never goes stale.
    """
    suffix = f"-{'-'.join(sorted(only))}"[:64] if only else ""
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
        await asyncio.gather(*(fetch(file) for file in manifest.files if not only or file.path in only))
        await asyncio.to_thread(_move, temporary, target)
    finally:
        await asyncio.to_thread(shutil.rmtree, temporary, True)
    return target


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
