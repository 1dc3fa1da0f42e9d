"""Code, datasets and base models through the service: each ends well or with a clear error, and the service stays up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from libs.common.blobs.folders import read_manifest
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.code import (
    GetSync,
    ListSyncs,
    RepositorySynced,
    RepositorySyncFailed,
    SyncRepository,
)
from libs.common.contracts.datasets import (
    CompleteUpload,
    CreateDataset,
    DatasetReady,
    DatasetRejected,
    DeleteDataset,
    GetDataset,
    ListDatasets,
)
from libs.common.contracts.models import BaseModelReady, BaseModelRejected, GetBaseModel, RegisterBaseModel
from libs.common.contracts.runs import GetRecipe
from libs.common.contracts.workspaces import ConnectRepository, GetProject
from libs.common.errors import Conflict, Invalid, NotFound
from tests.registry.dataset_files import GOOD, jsonl, parquet, three
from tests.registry.git_repositories import REWARD, Repository
from tests.registry.worlds import Team, World

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_sync_finds_the_code_and_keeps_the_commit(world: World, team: Team, tmp_path: Path):
    repository = Repository(tmp_path / "code")
    commit = repository.commit({"reward_fn/compute.py": REWARD}, message="scores")
    project = await team.project()
    sync = await team.sync(project, repository)
    assert (sync.status, sync.commit, sync.author, sync.message) == ("success", commit, "Ada", "scores")
    assert [(f.kind, f.name, f.file, f.line) for f in sync.findings] == [
        ("reward", "compute.exact", "reward_fn/compute.py", 5)
    ]
    assert (await team.ask(GetProject(project_id=project.id))).sync_id == sync.id
    assert (await team.fact(RepositorySynced)).commit == commit


async def test_a_bad_sync_shows_what_was_found_and_leaves_the_good_one_in_use(
    world: World, team: Team, tmp_path: Path
):
    repository = Repository(tmp_path / "code")
    repository.commit({"reward_fn/compute.py": REWARD})
    project = await team.project()
    good = await team.sync(project, repository)
    repository.commit({"reward_fn/bad.py": "def f(:\n"})
    bad = await team.sync(project, repository)
    assert bad.status == "failed"
    assert [(error.file, error.line) for error in bad.errors] == [("reward_fn/bad.py", 1)]
    assert [finding.name for finding in bad.findings] == ["compute.exact"]
    assert (await team.ask(GetProject(project_id=project.id))).sync_id == good.id
    assert (await team.fact(RepositorySyncFailed)).errors == bad.errors
    page = await team.ask(ListSyncs(project_id=project.id))
    assert [sync.id for sync in page.items] == [bad.id, good.id]


async def test_another_repository_puts_the_old_code_out_of_use(team: Team, tmp_path: Path):
    repository = Repository(tmp_path / "code")
    repository.commit({"reward_fn/compute.py": REWARD})
    project = await team.project()
    await team.sync(project, repository)
    other = await team.ask(ConnectRepository(project_id=project.id, url="https://example.org/other"))
    assert other.sync_id is None


async def test_a_sync_without_a_repository_is_refused(team: Team):
    with pytest.raises(Conflict, match="connect one first"):
        await team.ask(SyncRepository(project_id=(await team.project()).id))


async def test_a_repository_that_is_not_there_fails_its_sync(team: Team, tmp_path: Path):
    project = await team.project()
    await team.ask(ConnectRepository(project_id=project.id, url=str(tmp_path / "nothing")))
    started = await team.ask(SyncRepository(project_id=project.id))
    await team.fact(RepositorySyncFailed)
    sync = await team.ask(GetSync(sync_id=started.id))
    assert sync.status == "failed"
    assert "no git repository" in sync.errors[0].message
    assert str(tmp_path) not in sync.errors[0].message


async def test_a_dataset_becomes_rows_that_are_read_by_index(world: World, team: Team):
    dataset = await team.dataset(jsonl(GOOD, GOOD | {"level": 2}))
    assert (dataset.status, dataset.error, dataset.name) == ("uploaded", None, "rows.jsonl")
    assert dataset.report is not None
    assert dataset.report.rows == 2
    assert dataset.preview == [GOOD, GOOD | {"level": 2}]
    assert (await team.fact(DatasetReady)).rows == 2
    content = await world.platform.blobs.stat(f"datasets/{dataset.id}/content.jsonl")
    index = await world.platform.blobs.stat(f"datasets/{dataset.id}/index")
    assert content is not None
    assert index is not None
    offsets = await world.platform.blobs.get_bytes(index)
    start, stop = (int.from_bytes(offsets[i : i + 8], "little") for i in (8, 16))
    chunks = [chunk async for chunk in world.platform.blobs.read(content.key, start, stop)]
    assert json.loads(b"".join(chunks)) == GOOD | {"level": 2}


@pytest.mark.parametrize(
    ("content", "file_name", "row", "field"),
    [
        (jsonl(GOOD) + b"{\n", "a.jsonl", 1, None),
        (b"system_prompt,user_prompt\na,b\n", "a.csv", 0, "ground_truth"),
        (parquet(three() | {"user_prompt": [1]}), "a.parquet", 0, "user_prompt"),
        (b"", "a.jsonl", None, None),
    ],
)
async def test_a_bad_dataset_names_row_and_field(
    world: World, team: Team, content: bytes, file_name: str, row: int | None, field: str | None
):
    dataset = await team.dataset(content, file_name)
    assert dataset.status == "error"
    assert dataset.error
    assert dataset.report is not None
    first = dataset.report.errors[0]
    assert (first.row, first.field) == (row, field)
    assert (await team.fact(DatasetRejected)).errors == dataset.report.errors
    assert await world.platform.blobs.stat(f"datasets/{dataset.id}/content.jsonl") is None


async def test_a_json_file_is_refused_at_once(team: Team):
    with pytest.raises(Invalid, match=r"\.jsonl"):
        await team.ask(CreateDataset(file_name="rows.json"))


async def test_an_upload_is_completed_once(world: World, team: Team):
    dataset = await team.ask(CreateDataset(file_name="rows.jsonl"))
    blob = await world.platform.blobs.put_bytes(f"uploads/{dataset.id}/file", jsonl(GOOD))
    done = await team.ask(CompleteUpload(dataset_id=dataset.id, content=blob))
    assert done.status == "processing"
    assert (await team.ask(CompleteUpload(dataset_id=dataset.id, content=blob))).id == dataset.id
    other = blob.model_copy(update={"key": "uploads/other"})
    with pytest.raises(Conflict):
        await team.ask(CompleteUpload(dataset_id=dataset.id, content=other))
    await team.fact(DatasetReady)


async def test_an_upload_that_vanished_is_an_error_of_the_dataset(team: Team):
    dataset = await team.ask(CreateDataset(file_name="rows.jsonl"))
    lost = BlobRef(key=f"uploads/{dataset.id}/lost", size=1, sha256="0" * 64)
    await team.ask(CompleteUpload(dataset_id=dataset.id, content=lost))
    await team.fact(DatasetRejected)
    assert (await team.ask(GetDataset(dataset_id=dataset.id))).status == "error"


async def test_a_dataset_is_deleted_unless_a_run_needs_it(team: Team):
    ready = await team.ready()
    validation = await team.dataset()
    run = await ready.run(validation={"dataset": validation.id})
    for needed in (ready.dataset, validation):
        with pytest.raises(Conflict, match=run.id):
            await team.ask(DeleteDataset(dataset_id=needed.id))
    await run.running()
    await run.end(1, "completed")
    await run.becomes("completed")
    await team.ask(DeleteDataset(dataset_id=ready.dataset.id))
    with pytest.raises(NotFound):
        await team.ask(GetDataset(dataset_id=ready.dataset.id))
    assert [d.id for d in (await team.ask(ListDatasets())).items] == [validation.id]
    assert (await team.ask(GetRecipe(run_id=run.id))).recipe.dataset.dataset_id == ready.dataset.id


async def test_a_base_model_is_copied_without_what_could_run_code(world: World, team: Team):
    files = {
        "config.json": '{"model_type": "llama"}',
        "model.safetensors": "weights",
        "pytorch_model.bin": "x",
        "evil.py": "x",
    }
    model = await team.base_model(files=files)
    assert (model.status, model.size, model.licence) == ("ready", len("weights") + 23, "mit")
    await team.fact(BaseModelReady)
    manifest = await world.platform.blobs.stat(f"base-models/{model.id}/manifest.json")
    assert manifest is not None
    stored = await read_manifest(world.platform.blobs, manifest)
    assert [file.path for file in stored.files] == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config.json": "{}"}, "model_type"),
        ({"model.safetensors": "x"}, "config.json"),
        ({"config.json": "nonsense", "model.safetensors": "x"}, "not JSON"),
        ({"config.json": '{"model_type": "llama"}', "pytorch_model.bin": "x"}, "safetensors"),
    ],
)
async def test_a_folder_that_is_no_model_is_refused(team: Team, files: dict[str, str], said: str):
    with pytest.raises(Invalid, match=said):
        await team.base_model("broken", files)


@pytest.mark.parametrize("folder", ["", ".", "..", "../..", "/etc", "nothing", "outside", "a\0b"])
async def test_nothing_outside_of_the_model_roots_is_reached(team: Team, tmp_path: Path, folder: str):
    store = team.world.platform.settings.model_store
    store.mkdir(parents=True, exist_ok=True)
    link = store / "outside"
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path)
    with pytest.raises(Invalid, match="no folder"):
        await team.ask(RegisterBaseModel(name="x", folder=folder))


async def test_a_link_to_a_file_outside_is_refused(team: Team, tmp_path: Path):
    folder = team.world.platform.settings.model_store / "sly"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").unlink(missing_ok=True)
    (folder / "model.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="leads out"):
        await team.ask(RegisterBaseModel(name="sly", folder="sly"))


async def test_a_model_that_vanishes_before_its_copy_is_an_error(world: World, team: Team):
    model = await team.base_model()
    assert model.status == "ready"
    with pytest.raises(Conflict, match="tiny"):
        await team.ask(RegisterBaseModel(name="tiny", folder="tiny"))
    assert team.facts(BaseModelRejected) == []
    stranger = await world.team()
    with pytest.raises(NotFound):
        await stranger.ask(GetBaseModel(model_id=model.id))
