"""The registry as a service: what it answers, which facts it hears, what it works on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from libs.common.contracts import code, datasets, models, runs, work, workspaces
from libs.common.contracts.requests import Caller, ReplyT, Request
from libs.common.platform import Platform
from libs.common.service import Service
from services.registry.handlers import attempts as attempt_handlers
from services.registry.handlers import base_models as base_model_handlers
from services.registry.handlers import code as code_handlers
from services.registry.handlers import datasets as dataset_handlers
from services.registry.handlers import models as model_handlers
from services.registry.handlers import projects as project_handlers
from services.registry.handlers import runs as run_handlers
from services.registry.handlers import workspaces as workspace_handlers
from services.registry.pruning import Pruning
from services.registry.scratch import Scratch
from services.registry.store import RegistryStore

NAME = "registry"
MIGRATIONS = Path(__file__).parent / "migrations"

SYNCS_AT_ONCE = 2
VALIDATIONS_AT_ONCE = 2
COPIES_AT_ONCE = 1


def _read(
    service: Service[RegistryStore],
    request: type[Request[ReplyT]],
    answer: Callable[[Any, Caller, RegistryStore], Awaitable[ReplyT]],
) -> None:
    """Answer a question from a reading session: it waits for no writer."""

    async def outside(asked: Any, caller: Caller) -> ReplyT:
        async with service.units.read() as store:
            return await answer(asked, caller, store)

    service.answer_outside(request, outside)


def build(platform: Platform) -> Service[RegistryStore]:
    """The service over a platform."""
    service = Service(NAME, platform, store=RegistryStore, migrations=MIGRATIONS)
    _workspaces_and_projects(service, platform)
    _code_and_datasets(service, platform)
    _runs(service, platform)
    _models(service, platform)
    service.background("scratch", Scratch(platform.settings).sweep)
    return service


def _workspaces_and_projects(service: Service[RegistryStore], platform: Platform) -> None:
    service.answer(workspaces.CreateWorkspace, workspace_handlers.create_workspace)
    _read(service, workspaces.ListWorkspaces, workspace_handlers.list_workspaces)
    _read(service, workspaces.GetWorkspace, workspace_handlers.get_workspace)
    service.answer(workspaces.CreateKey, workspace_handlers.create_key)
    _read(service, workspaces.ListKeys, workspace_handlers.list_keys)
    service.answer(workspaces.RevokeKey, workspace_handlers.revoke_key)
    authentication = workspace_handlers.Authentication(service.units, platform.clock)
    service.answer_outside(workspaces.Authenticate, authentication)
    service.answer(workspaces.CreateProject, project_handlers.create_project)
    _read(service, workspaces.ListProjects, project_handlers.list_projects)
    _read(service, workspaces.GetProject, project_handlers.get_project)
    service.answer(workspaces.DeleteProject, project_handlers.delete_project)
    connection = project_handlers.RepositoryConnection(allow_local=platform.settings.git_allow_local)
    service.answer(workspaces.ConnectRepository, connection)


def _code_and_datasets(service: Service[RegistryStore], platform: Platform) -> None:
    service.answer(code.SyncRepository, code_handlers.sync_repository)
    _read(service, code.ListSyncs, code_handlers.list_syncs)
    _read(service, code.GetSync, code_handlers.get_sync)
    service.work(code.SyncRequested, code_handlers.Syncing(platform), concurrency=SYNCS_AT_ONCE)
    service.answer(datasets.CreateDataset, dataset_handlers.create_dataset)
    service.answer(datasets.CompleteUpload, dataset_handlers.complete_upload)
    _read(service, datasets.ListDatasets, dataset_handlers.list_datasets)
    _read(service, datasets.GetDataset, dataset_handlers.get_dataset)
    service.answer(datasets.DeleteDataset, dataset_handlers.delete_dataset)
    validation = dataset_handlers.Validation(platform)
    service.work(datasets.DatasetUploaded, validation, concurrency=VALIDATIONS_AT_ONCE)


def _runs(service: Service[RegistryStore], platform: Platform) -> None:
    service.answer(runs.CreateRun, run_handlers.Creation(platform))
    _read(service, runs.ListRuns, run_handlers.list_runs)
    _read(service, runs.GetRun, run_handlers.get_run)
    _read(service, runs.GetRecipe, run_handlers.get_recipe)
    _read(service, runs.ListTransitions, run_handlers.list_transitions)
    service.answer(runs.CancelRun, run_handlers.cancel_run)
    service.answer(runs.PauseRun, run_handlers.pause_run)
    service.answer(runs.ResumeRun, run_handlers.resume_run)
    pruning = Pruning(platform.blobs, service.units)
    service.background("pruning", pruning.run)
    facts = attempt_handlers.AttemptFacts(platform, surplus=pruning.notify)
    service.on(work.LeaseGranted, facts.on_lease_granted)
    service.on(work.LeaseLost, facts.on_lease_lost)
    service.on(work.AttemptStarted, facts.on_attempt_started)
    service.on(work.AttemptEnded, facts.on_attempt_ended)
    service.on(work.AttemptStepped, attempt_handlers.on_attempt_stepped)
    service.on(work.CheckpointSaved, facts.on_checkpoint_saved)


def _models(service: Service[RegistryStore], platform: Platform) -> None:
    service.answer(models.RegisterBaseModel, base_model_handlers.Registration(platform))
    _read(service, models.ListBaseModels, base_model_handlers.list_base_models)
    _read(service, models.GetBaseModel, base_model_handlers.get_base_model)
    copying = base_model_handlers.Copying(platform)
    service.work(models.BaseModelRegistered, copying, concurrency=COPIES_AT_ONCE)
    _read(service, models.ListCheckpoints, model_handlers.list_checkpoints)
    _read(service, models.GetCheckpoint, model_handlers.get_checkpoint)
    _read(service, models.ListModels, model_handlers.list_models)
    _read(service, models.GetModel, model_handlers.get_model)
    service.answer_outside(models.ListModelFiles, model_handlers.ModelFileList(platform, service.units))
    jobs = model_handlers.Jobs(platform)
    service.answer(models.MergeCheckpoint, jobs.merge)
    service.answer(models.ExportModel, jobs.export)
    _read(service, models.GetJob, model_handlers.get_job)
