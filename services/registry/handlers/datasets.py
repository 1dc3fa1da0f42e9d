"""Datasets: announced, uploaded, validated in the background, deleted."""

from __future__ import annotations

import json
from dataclasses import dataclass

from libs.common.blobs import BlobDamaged, BlobMissing, BlobStore
from libs.common.consuming import Work
from libs.common.contracts.datasets import (
    CompleteUpload,
    CreateDataset,
    DatasetFormat,
    DatasetPage,
    DatasetReady,
    DatasetRejected,
    DatasetReport,
    DatasetUploaded,
    DatasetView,
    DeleteDataset,
    GetDataset,
    ListDatasets,
    RowError,
)
from libs.common.contracts.recipes import DatasetSnapshot
from libs.common.contracts.requests import Caller, Done
from libs.common.errors import Conflict, NotFound
from libs.common.identifiers import DatasetId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.datasets import Outcome, format_of
from services.registry.datasets.process import validate_apart
from services.registry.handlers.last_delivery import SORRY, give_up, is_last
from services.registry.scratch import Scratch
from services.registry.store import RegistryStore
from services.registry.tables import DatasetRow
from services.registry.views import dataset_view

Uow = UnitOfWork[RegistryStore]


async def dataset_of(
    dataset_id: DatasetId, caller: Caller, store: RegistryStore, *, lock: bool = False
) -> DatasetRow:
    """A dataset of the caller's workspace.

    Raises:
        NotFound: there is none.
    """
    row = await store.datasets.get(caller.workspace(), dataset_id, lock=lock)
    if row is None:
        raise NotFound(f"no dataset {dataset_id} in this workspace")
    return row


async def create_dataset(request: CreateDataset, caller: Caller, uow: Uow) -> DatasetView:
    """Announce a file.

    Raises:
        Invalid: its suffix is none of a dataset's.
    """
    now = uow.now()
    row = DatasetRow(
        id=uow.new_id("ds"),
        workspace_id=caller.workspace(),
        name=request.name or request.file_name[:128],
        file_name=request.file_name,
        format=format_of(request.file_name),
        size=0,
        status="pending",
        preview_json="[]",
        created_at=now,
        updated_at=now,
    )
    await uow.store.datasets.add(row)
    return dataset_view(row)


async def complete_upload(request: CompleteUpload, caller: Caller, uow: Uow) -> DatasetView:
    """The file arrived: validate it in the background. Saying the same again changes nothing.

    Raises:
        Conflict: the dataset has another file already.
    """
    row = await dataset_of(request.dataset_id, caller, uow.store, lock=True)
    content = request.content.model_dump_json()
    if row.upload_json == content:
        return dataset_view(row)
    if row.upload_json is not None:
        raise Conflict(f"dataset {row.id} has its file already; make another dataset")
    row.upload_json, row.size = content, request.content.size
    row.status, row.updated_at = "processing", uow.now()
    uow.emit(
        DatasetUploaded(
            workspace_id=caller.workspace(), dataset_id=request.dataset_id, content=request.content
        )
    )
    return dataset_view(row)


async def list_datasets(request: ListDatasets, caller: Caller, store: RegistryStore) -> DatasetPage:
    """Datasets of the workspace."""
    page = await store.datasets.page(caller.workspace(), limit=request.limit, cursor=request.cursor)
    return DatasetPage(items=[dataset_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_dataset(request: GetDataset, caller: Caller, store: RegistryStore) -> DatasetView:
    """One dataset."""
    return dataset_view(await dataset_of(request.dataset_id, caller, store))


async def delete_dataset(request: DeleteDataset, caller: Caller, uow: Uow) -> Done:
    """Delete a dataset. Its rows stay in the blob store: recipes of ended runs name them.

    Raises:
        Conflict: an active run needs it.
    """
    row = await dataset_of(request.dataset_id, caller, uow.store, lock=True)
    active = await uow.store.runs.active_on_dataset(row.id)
    if active:
        raise Conflict(f"active runs need the dataset ({', '.join(active)}); cancel them first")
    row.status, row.updated_at = "deleted", uow.now()
    return Done()


@dataclass(frozen=True)
class _Result:
    outcome: Outcome
    snapshot: DatasetSnapshot | None


class Validation:
    """Validates uploaded files."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs
        self._scratch = Scratch(platform.settings)

    async def __call__(self, fact: DatasetUploaded, work: Work[RegistryStore]) -> None:
        """Read the file in a process of its own, keep the canonical form, end the dataset's processing."""
        async with work.unit_of_work() as uow:
            row = await uow.store.datasets.for_change(fact.dataset_id)
            if row is None or row.status != "processing":
                return
            format: DatasetFormat = format_of(row.file_name)
        try:
            result = await self._validate(fact, format)
        except (BlobMissing, BlobDamaged) as error:
            result = _Result(
                _failed("upload_lost", f"the uploaded file is not there or damaged: {error}"), None
            )
        except Exception as error:
            if not is_last(work):
                raise
            give_up(f"validation of {fact.dataset_id}", error)
            result = _Result(_failed("internal", SORRY), None)
        async with work.finish() as uow:
            await _end(fact, result, uow)

    async def _validate(self, fact: DatasetUploaded, format: DatasetFormat) -> _Result:
        async with self._scratch.folder("dataset") as folder:
            await self._blobs.fetch(fact.content, folder / "upload")
            done = await validate_apart(folder / "upload", format, folder)
            if not done.outcome.valid:
                return _Result(done.outcome, None)
            prefix = f"datasets/{fact.dataset_id}"
            content = await self._blobs.put_file(f"{prefix}/content.jsonl", done.content)
            index = await self._blobs.put_file(f"{prefix}/index", done.index)
        rows = done.outcome.report.rows
        snapshot = DatasetSnapshot(dataset_id=fact.dataset_id, rows=rows, content=content, index=index)
        return _Result(done.outcome, snapshot)


def _failed(kind: str, message: str) -> Outcome:
    error = RowError(row=None, field=None, kind=kind, message=message)
    report = DatasetReport(rows=0, columns=[], errors=[error], warnings=[], counts={kind: 1})
    return Outcome(report, [])


async def _end(fact: DatasetUploaded, result: _Result, uow: Uow) -> None:
    row = await uow.store.datasets.for_change(fact.dataset_id)
    if row is None or row.status != "processing":
        return
    report = result.outcome.report
    row.report_json = report.model_dump_json()
    row.preview_json = json.dumps(result.outcome.preview)
    row.updated_at = uow.now()
    if result.snapshot is not None:
        row.status, row.snapshot_json = "uploaded", result.snapshot.model_dump_json()
        uow.emit(DatasetReady(workspace_id=fact.workspace_id, dataset_id=fact.dataset_id, rows=report.rows))
        return
    row.status, row.error = "error", _summary(report)
    uow.emit(
        DatasetRejected(workspace_id=fact.workspace_id, dataset_id=fact.dataset_id, errors=report.errors)
    )


def _summary(report: DatasetReport) -> str:
    """One sentence: how many faults, and the first."""
    total = sum(report.counts.values())
    first = report.errors[0]
    place = "" if first.row is None else f"row {first.row}: "
    return f"{total} error(s); the first: {place}{first.message}"
