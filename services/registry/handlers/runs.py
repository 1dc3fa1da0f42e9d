"""Runs: created with frozen inputs, listed, paused, resumed, cancelled."""

from __future__ import annotations

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import (
    BaseModelSnapshot,
    CodeSnapshot,
    DatasetSnapshot,
    Recipe,
    TrainOrder,
)
from libs.common.contracts.requests import Caller
from libs.common.contracts.runs import (
    CancelRun,
    CreateRun,
    FrozenRecipe,
    GetRecipe,
    GetRun,
    ListRuns,
    ListTransitions,
    PauseRun,
    ResumeRun,
    RunCreated,
    RunPage,
    RunView,
    Transitions,
)
from libs.common.errors import Conflict, NotFound
from libs.common.identifiers import ModelId, ProjectId, RunId, SyncId, WorkspaceId
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitOfWork
from services.registry.handlers.moving import apply, progress_of, record_start
from services.registry.handlers.projects import project_of
from services.registry.runs import CheckedRun, Known, KnownDataset, RunEvent, ask, check, named
from services.registry.runs.configuration import KnownCode, KnownModel
from services.registry.store import RegistryStore
from services.registry.tables import ProjectRow, RunRow
from services.registry.views import run_view, transition_view

Uow = UnitOfWork[RegistryStore]


async def run_of(run_id: RunId, caller: Caller, store: RegistryStore, *, lock: bool = False) -> RunRow:
    """A run of the caller's workspace.

    Raises:
        NotFound: there is none.
    """
    row = await store.runs.get(caller.workspace(), run_id, lock=lock)
    if row is None:
        raise NotFound(f"no run {run_id} in this workspace")
    return row


class Creation:
    """Creates runs: checks everything that a configuration names, freezes it, queues the run."""

    def __init__(self, platform: Platform) -> None:
        self._blobs: BlobStore = platform.blobs

    async def __call__(self, request: CreateRun, caller: Caller, uow: Uow) -> RunView:
        """Create and queue a run.

        Raises:
            Invalid: with every fault of the configuration.
        """
        project = await project_of(request.project_id, caller, uow.store, lock=True)
        known = await look_up(request, project, uow)
        recipe = _freeze(check(request.config, known), project, RunId(uow.new_id("run")))
        # A small write of content that is named by the run's own id: repeating it, or leaving it behind, harms nobody.
        order = await self._blobs.put_bytes(
            f"runs/{recipe.run_id}/order.json", TrainOrder(recipe=recipe).model_dump_json().encode()
        )
        row = _row(recipe, order, uow)
        await uow.store.runs.add(row)
        uow.emit(
            RunCreated(
                workspace_id=recipe.workspace_id,
                run_id=recipe.run_id,
                project_id=recipe.project_id,
                name=row.name,
            )
        )
        await record_start(row, uow)
        await _ask(row, "frozen", uow)
        return run_view(row)


async def look_up(request: CreateRun, project: ProjectRow, uow: Uow) -> Known:
    """What the configuration names, as it is in the workspace; datasets are locked against deletion."""
    names, workspace = named(request.config), WorkspaceId(project.workspace_id)
    return Known(
        base_model=await _base_model(workspace, names.base_model, uow),
        dataset=await _dataset(workspace, names.dataset, uow),
        validation_dataset=await _dataset(workspace, names.validation_dataset, uow),
        code=await _code(workspace, project, uow),
    )


async def _base_model(workspace: WorkspaceId, name: str | None, uow: Uow) -> KnownModel | None:
    row = await uow.store.models.base_by_id_or_name(workspace, name) if name is not None else None
    if row is None:
        return None
    if row.manifest_json is None or row.status != "ready":
        return KnownModel(row.status, None)
    manifest = BlobRef.model_validate_json(row.manifest_json)
    snapshot = BaseModelSnapshot(
        model_id=ModelId(row.id), name=row.name, licence=row.licence, manifest=manifest
    )
    return KnownModel(row.status, snapshot)


async def _dataset(workspace: WorkspaceId, name: str | None, uow: Uow) -> KnownDataset | None:
    row = await uow.store.datasets.get(workspace, name, lock=True) if name is not None else None
    if row is None:
        return None
    ready = row.snapshot_json is not None and row.status == "uploaded"
    snapshot = DatasetSnapshot.model_validate_json(row.snapshot_json or "") if ready else None
    return KnownDataset(row.status, snapshot)


async def _code(workspace: WorkspaceId, project: ProjectRow, uow: Uow) -> KnownCode | None:
    if project.sync_id is None:
        return None
    row = await uow.store.code.get(workspace, SyncId(project.sync_id))
    if row is None or row.commit is None or row.archive_json is None:
        return None
    findings = (await uow.store.code.findings([row.id])).get(row.id, [])
    snapshot = CodeSnapshot(
        sync_id=SyncId(row.id),
        commit=row.commit,
        archive=BlobRef.model_validate_json(row.archive_json),
        has_tools=any(finding.kind == "tool_server" for finding in findings),
    )
    return KnownCode(snapshot, findings)


def _freeze(checked: CheckedRun, project: ProjectRow, run_id: RunId) -> Recipe:
    return Recipe(
        run_id=run_id,
        workspace_id=WorkspaceId(project.workspace_id),
        project_id=ProjectId(project.id),
        config=checked.config,
        base_model=checked.base_model,
        dataset=checked.dataset,
        validation_dataset=checked.validation_dataset,
        code=checked.code,
        rewards=checked.rewards,
    )


def _row(recipe: Recipe, order: BlobRef, uow: Uow) -> RunRow:
    validation = recipe.validation_dataset
    return RunRow(
        id=recipe.run_id,
        workspace_id=recipe.workspace_id,
        project_id=recipe.project_id,
        dataset_id=recipe.dataset.dataset_id,
        validation_dataset_id=validation.dataset_id if validation else None,
        name=recipe.config.name,
        recipe_json=recipe.model_dump_json(),
        order_json=order.model_dump_json(),
        status="pending",
        epoch=0,
        attempt_over=True,
        attempts=0,
        losses=0,
        step=0,
        total_steps=0,
        created_at=uow.now(),
    )


async def list_runs(request: ListRuns, caller: Caller, store: RegistryStore) -> RunPage:
    """Runs of the workspace, newest first."""
    page = await store.runs.page(
        caller.workspace(),
        project_id=request.project_id,
        status=request.status,
        limit=request.limit,
        cursor=request.cursor,
    )
    return RunPage(items=[run_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_run(request: GetRun, caller: Caller, store: RegistryStore) -> RunView:
    """One run."""
    return run_view(await run_of(request.run_id, caller, store))


async def get_recipe(request: GetRecipe, caller: Caller, store: RegistryStore) -> FrozenRecipe:
    """The frozen inputs of a run."""
    row = await run_of(request.run_id, caller, store)
    return FrozenRecipe(recipe=Recipe.model_validate_json(row.recipe_json))


async def list_transitions(request: ListTransitions, caller: Caller, store: RegistryStore) -> Transitions:
    """The history of a run's status."""
    row = await run_of(request.run_id, caller, store)
    return Transitions(items=[transition_view(each) for each in await store.runs.transitions(RunId(row.id))])


async def cancel_run(request: CancelRun, caller: Caller, uow: Uow) -> RunView:
    """Stop a run for good; cancelling a cancelled one changes nothing.

    Raises:
        Conflict: it has ended otherwise.
    """
    row = await run_of(request.run_id, caller, uow.store, lock=True)
    if row.status != "cancelled":
        await _ask(row, "cancel_requested", uow, reason=request.reason)
    return run_view(row)


async def pause_run(request: PauseRun, caller: Caller, uow: Uow) -> RunView:
    """Save a running run's state and release its resources; pausing a paused one changes nothing.

    Raises:
        Conflict: it is not running.
    """
    row = await run_of(request.run_id, caller, uow.store, lock=True)
    if row.status not in ("pausing", "paused"):
        await _ask(row, "pause_requested", uow)
    return run_view(row)


async def resume_run(request: ResumeRun, caller: Caller, uow: Uow) -> RunView:
    """Queue a paused run again.

    Raises:
        Conflict: it is not paused.
    """
    row = await run_of(request.run_id, caller, uow.store, lock=True)
    await _ask(row, "resume_requested", uow)
    return run_view(row)


_VERBS: dict[RunEvent, str] = {
    "cancel_requested": "cancelled",
    "pause_requested": "paused: only a running one can",
    "resume_requested": "resumed: only a paused one can",
}


async def _ask(row: RunRow, event: RunEvent, uow: Uow, *, reason: str | None = None) -> None:
    move = ask(progress_of(row), event)
    if move is None:
        raise Conflict(f"run {row.id} is {row.status} and cannot be {_VERBS.get(event, event)}")
    await apply(row, move, uow, reason=reason)
