"""Folders in the blob store: whole or not there, over both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libs.common.blobs import BlobDamaged, BlobMissing, BlobStore
from libs.common.blobs.folders import download_folder, read_manifest, upload_folder
from libs.common.contracts.blobs import ArtifactFile, ArtifactManifest
from libs.common.errors import Invalid
from tests.support.bus import until

FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 1000, "deep/er/file": b"3", "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    for name, data in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    return made


def files_in(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


async def test_a_folder_comes_back_as_it_was(blobs: BlobStore, folder: Path, tmp_path: Path) -> None:
    ref = await upload_folder(blobs, folder, "models/1", kind="model", attributes={"step": 3})
    manifest = await read_manifest(blobs, ref)
    assert (manifest.kind, manifest.attributes) == ("model", {"step": 3})
    assert sorted(file.path for file in manifest.files) == sorted(FILES)
    assert files_in(await download_folder(blobs, ref, tmp_path / "cache")) == FILES


async def test_a_folder_that_lies_in_the_cache_is_used(
    blobs: BlobStore, folder: Path, tmp_path: Path
) -> None:
    ref = await upload_folder(blobs, folder, "models/1", kind="model")
    first = await download_folder(blobs, ref, tmp_path / "cache")
    await blobs.delete_prefix("models/1/")
    assert await download_folder(blobs, ref, tmp_path / "cache") == first


async def test_some_files_of_a_folder_have_a_place_of_their_own(
    blobs: BlobStore, folder: Path, tmp_path: Path
) -> None:
    ref = await upload_folder(blobs, folder, "models/1", kind="model")
    some = await download_folder(blobs, ref, tmp_path / "cache", only=("config.json", "empty"))
    assert set(files_in(some)) == {"config.json", "empty"}
    others = await download_folder(blobs, ref, tmp_path / "cache", only=("config.json", "deep/er/file"))
    assert set(files_in(others)) == {"config.json", "deep/er/file"}
    assert files_in(await download_folder(blobs, ref, tmp_path / "cache")) == FILES


async def test_who_asks_for_one_folder_at_once_gets_the_same_one(
    blobs: BlobStore, folder: Path, tmp_path: Path
) -> None:
    ref = await upload_folder(blobs, folder, "models/1", kind="model")
    places = await asyncio.gather(*(download_folder(blobs, ref, tmp_path / "cache") for _ in range(4)))
    assert len(set(places)) == 1
    assert files_in(places[0]) == FILES
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [places[0].name]


@pytest.mark.parametrize("damage", ["missing", "changed"])
async def test_a_folder_with_a_bad_part_does_not_appear(
    blobs: BlobStore, folder: Path, tmp_path: Path, damage: str
) -> None:
    ref = await upload_folder(blobs, folder, "models/1", kind="model")
    if damage == "missing":
        await blobs.delete("models/1/deep/er/file")
    else:
        await blobs.put_bytes("models/1/deep/er/file", b"4")
    with pytest.raises(BlobMissing if damage == "missing" else BlobDamaged, match="deep/er/file"):
        await download_folder(blobs, ref, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


async def test_a_manifest_that_points_out_of_its_folder_is_refused(blobs: BlobStore, tmp_path: Path) -> None:
    blob = await blobs.put_bytes("x", b"evil")
    manifest = ArtifactManifest(kind="model", files=[ArtifactFile(path="../../evil", blob=blob)])
    ref = await blobs.put_bytes("manifest", manifest.model_dump_json().encode())
    with pytest.raises(ValueError, match="outside of its folder"):
        await download_folder(blobs, ref, tmp_path / "cache")
    assert not (tmp_path / "evil").exists()


async def test_a_folder_whose_upload_fails_has_no_manifest(blobs: BlobStore, folder: Path) -> None:
    (folder / "näme").write_bytes(b"no key")
    with pytest.raises(Invalid, match="näme"):
        await upload_folder(blobs, folder, "models/1", kind="model")
    assert await blobs.stat("models/1/manifest.json") is None


async def test_a_folder_with_a_manifest_of_its_own_is_refused(blobs: BlobStore, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"{}")
    with pytest.raises(Invalid, match=r"manifest\.json of its own"):
        await upload_folder(blobs, folder, "models/1", kind="model")


async def test_a_download_that_is_cancelled_leaves_nothing_in_the_cache(
    blobs: BlobStore, folder: Path, tmp_path: Path
) -> None:
    for number in range(20):
        (folder / f"{number}.bin").write_bytes(b"x" * 300_000)
    ref = await upload_folder(blobs, folder, "models/1", kind="model")
    cache = tmp_path / "cache"
    download = asyncio.create_task(download_folder(blobs, ref, cache))
    await until(lambda: any(cache.rglob("*.bin*")))
    download.cancel()
    with pytest.raises(asyncio.CancelledError):
        await download
    assert list(cache.iterdir()) == []
