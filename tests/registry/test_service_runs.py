"""Runs through the service: frozen inputs, fencing, resume points, merges and exports."""

from __future__ import annotations

import pytest

from libs.common.blobs.folders import upload_folder
from libs.common.contracts.models import (
    ExportModel,
    GetCheckpoint,
    GetJob,
    GetModel,
    JobFailed,
    JobView,
    ListCheckpoints,
    ListModelFiles,
    ListModels,
    MergeCheckpoint,
    ModelExported,
    ModelReady,
)
from libs.common.contracts.recipes import ExportOrder, MergeOrder, TrainOrder
from libs.common.contracts.runs import (
    CancelRun,
    CreateRun,
    GetRecipe,
    GetRun,
    ListRuns,
    ListTransitions,
    PauseRun,
    ResumeRun,
    RunCancelled,
    RunCreated,
    RunFact,
    RunFailed,
    RunPaused,
    RunQueued,
)
from libs.common.contracts.work import JobQueued
from libs.common.contracts.workspaces import DeleteProject
from libs.common.errors import Conflict, Invalid, NotFound
from libs.common.identifiers import JobId
from tests.registry.git_repositories import REWARD
from tests.registry.worlds import Ready, Run, Team, World, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def keys(run: Run) -> list[str]:
    return [fact.KEY for fact in run.facts(RunFact)]


async def test_a_run_freezes_what_it_names(world: World, team: Team):
    ready = await team.ready()
    run = await ready.run(name="first", notes="n", seed=7)
    view = await run.view()
    assert (view.status, view.legacy_status, view.name, view.notes, view.attempts) == (
        "queued",
        "pending",
        "first",
        "n",
        0,
    )
    queued = await run.fact(RunQueued)
    assert queued.resume_from is None
    order = TrainOrder.model_validate_json(await world.platform.blobs.get_bytes(queued.order))
    recipe = (await team.ask(GetRecipe(run_id=run.id))).recipe
    assert order.recipe == recipe
    assert recipe.dataset.rows == 4
    assert recipe.base_model.model_id == ready.model.id
    assert [(r.file, r.function) for r in recipe.rewards] == [("reward_fn/compute.py", "exact")]
    before = recipe.code.commit
    ready.repository.commit({"reward_fn/compute.py": REWARD + "\n"})
    await team.sync(ready.project, ready.repository)
    assert (await team.ask(GetRecipe(run_id=run.id))).recipe.code.commit == before
    assert (await run.fact(RunCreated)).name == "first"


async def test_faults_come_all_at_once_and_no_run_is_made(team: Team):
    ready = await team.ready()
    config = ready.config(base_model="nope", dataset="nope", rewards=[{"name": "gone"}], colour="red")
    with pytest.raises(Invalid) as caught:
        await team.ask(CreateRun(project_id=ready.project.id, config=config))
    assert {"base_model", "dataset", "rewards.0.name", "colour"} <= {
        fault.path for fault in caught.value.fields
    }
    assert (await team.ask(ListRuns())).items == []


async def test_what_is_anothers_cannot_be_named(world: World, team: Team):
    theirs = await team.ready()
    stranger = await world.team()
    project = await stranger.project()
    with pytest.raises(Invalid) as caught:
        await stranger.ask(CreateRun(project_id=project.id, config=theirs.config(base_model=theirs.model.id)))
    assert {"base_model", "dataset", "rewards"} <= {fault.path for fault in caught.value.fields}
    with pytest.raises(NotFound):
        await stranger.ask(CreateRun(project_id=theirs.project.id, config=theirs.config()))


async def test_a_run_completes_with_its_history(ready: Ready):
    run = await ready.run()
    await run.running()
    await run.step(1, 0, "validation", eval__validation__reward=0.1)
    await run.step(1, 1, rollout__raw_reward=0.25)
    await run.save(1, 10)
    await run.step(1, 10, rollout__raw_reward=0.75)
    await run.step(1, 10, "validation", eval__validation__reward=0.9)
    await run.end(1, "completed", step=10)
    view = await run.becomes("completed")
    assert (view.step, view.total_steps, view.reward) == (10, 10, 0.75)
    assert (view.validation_before, view.validation_after) == (0.1, 0.9)
    assert view.started_at is not None
    assert view.ended_at is not None
    history = (await ready.team.ask(ListTransitions(run_id=run.id))).items
    assert [t.status for t in history] == ["pending", "queued", "provisioning", "running", "completed"]
    assert keys(run) == ["run.created", "run.queued", "run.provisioning", "run.running", "run.completed"]


async def test_an_attempt_may_be_heard_before_its_lease(ready: Ready):
    run = await ready.run()
    await run.start(1)
    await run.becomes("running")
    await run.grant(1)
    await run.step(1, 1)
    assert (await run.becomes("running")).attempts == 1
    assert keys(run) == ["run.created", "run.queued", "run.provisioning", "run.running"]


async def test_a_lost_attempt_is_queued_again_from_its_last_checkpoint_and_not_heard_any_more(ready: Ready):
    run = await ready.run()
    await run.running()
    saved = await run.save(1, 4)
    await run.step(1, 5, rollout__raw_reward=0.5)
    await run.lose(1)
    queued = await run.fact(RunQueued, 2)
    assert queued.resume_from is not None
    assert (queued.resume_from.checkpoint_id, queued.resume_from.step) == (saved, 4)
    await run.step(1, 9, rollout__raw_reward=0.9)
    await run.save(1, 9)
    await run.end(1, "completed", step=9)
    await run.grant(2)
    await run.start(2, from_step=4)
    view = await run.becomes("running")
    assert (view.epoch, view.attempts, view.step, view.reward) == (2, 2, 4, 0.5)
    assert [c.id for c in (await ready.team.ask(ListCheckpoints(run_id=run.id))).items] == [saved]


async def test_a_run_that_loses_its_attempts_fails_with_the_reason(ready: Ready):
    run = await ready.run(max_attempts=2)
    for epoch in (1, 2):
        await run.grant(epoch)
        await run.lose(epoch)
    view = await run.becomes("failed")
    assert view.legacy_status == "crashed"
    assert view.error is not None
    assert "2 times" in view.error
    assert "the process is gone" in view.error
    assert (await run.fact(RunFailed)).error == view.error


async def test_a_failed_attempt_fails_the_run_with_its_error(ready: Ready):
    run = await ready.run()
    await run.running()
    await run.end(1, "failed", error="compute.exact returned int")
    view = await run.becomes("failed")
    assert (view.error, view.legacy_status) == ("compute.exact returned int", "failed")


async def test_pause_and_resume_go_on_from_the_last_checkpoint(ready: Ready):
    run = await ready.run()
    with pytest.raises(Conflict, match="queued"):
        await ready.team.ask(PauseRun(run_id=run.id))
    await run.running()
    assert (await ready.team.ask(PauseRun(run_id=run.id))).status == "pausing"
    assert (await ready.team.ask(PauseRun(run_id=run.id))).status == "pausing"
    saved = await run.save(1, 3)
    await run.end(1, "paused", step=3)
    await run.becomes("paused")
    await run.fact(RunPaused)
    assert (await ready.team.ask(ResumeRun(run_id=run.id))).status == "queued"
    resume = (await run.fact(RunQueued, 2)).resume_from
    assert resume is not None
    assert resume.checkpoint_id == saved
    with pytest.raises(Conflict):
        await ready.team.ask(ResumeRun(run_id=run.id))


async def test_a_cancelled_run_stays_cancelled_and_keeps_its_last_checkpoint(ready: Ready):
    run = await ready.run()
    await run.running()
    view = await ready.team.ask(CancelRun(run_id=run.id, reason="wrong data"))
    assert (view.status, view.status_reason, view.legacy_status) == ("cancelled", "wrong data", "stopped")
    await run.fact(RunCancelled)
    saved = await run.save(1, 6)
    await run.end(1, "completed")

    async def kept() -> bool:
        return [c.id for c in (await ready.team.ask(ListCheckpoints(run_id=run.id))).items] == [saved]

    await until(kept, "the checkpoint")
    assert (await ready.team.ask(CancelRun(run_id=run.id))).status == "cancelled"
    assert (await run.view()).status == "cancelled"


async def test_an_ended_run_cannot_be_cancelled(ready: Ready):
    run = await ready.run()
    await run.running()
    await run.end(1, "completed")
    await run.becomes("completed")
    with pytest.raises(Conflict, match="completed"):
        await ready.team.ask(CancelRun(run_id=run.id))


async def test_a_project_with_an_active_run_is_not_deleted(team: Team):
    ready = await team.ready()
    run = await ready.run()
    with pytest.raises(Conflict, match=run.id):
        await team.ask(DeleteProject(project_id=ready.project.id))
    await team.ask(CancelRun(run_id=run.id))
    await team.ask(DeleteProject(project_id=ready.project.id))
    assert (await run.view()).status == "cancelled"


async def test_an_idempotency_key_makes_one_run(team: Team):
    ready = await team.ready()
    request = CreateRun(project_id=ready.project.id, config=ready.config())
    first = await team.ask(request, idempotency_key="k")
    assert (await team.ask(request, idempotency_key="k")).id == first.id
    assert len((await team.ask(ListRuns())).items) == 1


async def test_runs_are_listed_by_project_and_status(team: Team):
    ready = await team.ready()
    runs = [await ready.run() for _ in range(3)]
    await team.ask(CancelRun(run_id=runs[0].id))
    queued = await team.ask(ListRuns(status="queued", project_id=ready.project.id))
    assert [view.id for view in queued.items] == [runs[2].id, runs[1].id]
    page = await team.ask(ListRuns(limit=2))
    assert [view.id for view in page.items] == [runs[2].id, runs[1].id]
    assert [v.id for v in (await team.ask(ListRuns(cursor=page.next_cursor))).items] == [runs[0].id]


async def test_a_strangers_run_is_not_there(world: World, team: Team):
    run = await (await team.ready()).run()
    await run.running()
    saved = await run.save(1, 1)
    stranger = await world.team()
    requests = [
        kind(run_id=run.id)
        for kind in (GetRun, GetRecipe, ListTransitions, ListCheckpoints, CancelRun, PauseRun, ResumeRun)
    ]
    for request in [*requests, GetCheckpoint(checkpoint_id=saved), MergeCheckpoint(checkpoint_id=saved)]:
        with pytest.raises(NotFound):
            await stranger.ask(request)
    assert (await stranger.ask(ListRuns())).items == []
    assert (await stranger.ask(ListModels())).items == []


async def test_a_run_keeps_its_furthest_checkpoints_and_those_that_are_merged(world: World, ready: Ready):
    run = await ready.run(checkpoints={"keep": 2})
    await run.running()
    merged = await run.save(1, 1)

    async def listed(*steps: int) -> None:
        async def there() -> bool:
            page = await ready.team.ask(ListCheckpoints(run_id=run.id))
            return [checkpoint.step for checkpoint in page.items] == list(steps)

        await until(there, f"checkpoints of steps {steps}")

    await listed(1)
    await ready.team.ask(MergeCheckpoint(checkpoint_id=merged))
    gone = await run.save(1, 2)
    blobs = world.platform.blobs
    await blobs.put_bytes(f"checkpoints/{run.id}/{gone}/adapter.safetensors", b"weights")
    for step in (3, 4):
        await run.save(1, step)
    await listed(4, 3, 1)
    with pytest.raises(NotFound):
        await ready.team.ask(GetCheckpoint(checkpoint_id=gone))

    async def pruned() -> bool:
        return not [key async for key in blobs.list(f"checkpoints/{run.id}/{gone}/")]

    await until(pruned, "the blobs of the surplus checkpoint are gone")
    assert [key async for key in blobs.list(f"checkpoints/{run.id}/{merged}/")]


async def test_checkpoints_are_listed_by_step_in_pages(ready: Ready):
    run = await ready.run(checkpoints={"keep": 10})
    await run.running()
    for step in (1, 2, 3, 10, 11):
        await run.save(1, step)
    await run.save(1, 11)
    await run.end(1, "completed")
    await run.becomes("completed")
    seen: list[int] = []
    cursor = None
    while True:
        page = await ready.team.ask(ListCheckpoints(run_id=run.id, limit=2, cursor=cursor))
        seen += [checkpoint.step for checkpoint in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [11, 10, 3, 2, 1]
    with pytest.raises(Invalid):
        await ready.team.ask(ListCheckpoints(run_id=run.id, cursor="nonsense"))


class Job(Run):
    """A job, played like a run."""

    def __init__(self, team: Team, job: JobView) -> None:
        super().__init__(team, job.id)
        self.job_id = job.id

    async def ends(self) -> JobView:
        async def ended() -> JobView | None:
            view = await self.team.ask(GetJob(job_id=JobId(self.id)))
            return view if view.ended_at is not None else None

        return await until(ended, "the job's end")


async def checkpoint(ready: Ready) -> tuple[Run, str]:
    run = await ready.run(name="adder")
    await run.running()
    saved = await run.save(1, 5)
    await run.end(1, "completed")
    await run.becomes("completed")
    return run, saved


async def test_a_checkpoint_is_merged_and_exported(world: World, ready: Ready):
    run, saved = await checkpoint(ready)
    merge = Job(ready.team, await ready.team.ask(MergeCheckpoint(checkpoint_id=saved)))
    again = await ready.team.ask(MergeCheckpoint(checkpoint_id=saved))
    assert again.id == merge.job_id
    order = MergeOrder.model_validate_json(
        await world.platform.blobs.get_bytes((await merge.fact(JobQueued)).order)
    )
    assert order.checkpoint_id == saved
    with pytest.raises(Conflict, match="not ready"):
        await ready.team.ask(ExportModel(model_id=again.model_id))

    folder = world.folder / "merged"
    folder.mkdir()
    (folder / "model.safetensors").write_text("12345")
    artifact = await upload_folder(world.platform.blobs, folder, "models/x", kind="model")
    await merge.grant(1, "job")
    await merge.end(1, "completed", kind="job", artifact=artifact)
    assert (await merge.ends()).status == "completed"
    model = await ready.team.ask(GetModel(model_id=again.model_id))
    assert (model.status, model.size, model.exported, model.name) == ("ready", 5, False, "adder-step-5")
    assert (await world.fact(ModelReady, model.id)).checkpoint_id == saved
    assert (await ready.team.ask(GetCheckpoint(checkpoint_id=saved))).model_id == model.id
    assert [m.id for m in (await ready.team.ask(ListModels(run_id=run.id))).items] == [model.id]

    with pytest.raises(Conflict, match="export it first"):
        await ready.team.ask(ListModelFiles(model_id=model.id))
    export = Job(ready.team, await ready.team.ask(ExportModel(model_id=model.id)))
    queued = await export.fact(JobQueued)
    order = ExportOrder.model_validate_json(await world.platform.blobs.get_bytes(queued.order))
    assert (order.metrics, order.model) == ({"rollout/raw_reward": 0.5}, artifact)
    await export.end(1, "completed", kind="job", artifact=artifact)
    assert (await export.ends()).status == "completed"
    await world.fact(ModelExported, model.id)
    files = (await ready.team.ask(ListModelFiles(model_id=model.id))).files
    assert [file.path for file in files] == ["model.safetensors"]
    assert (await ready.team.ask(GetModel(model_id=model.id))).exported


async def test_a_lost_job_starts_again_and_a_late_word_changes_nothing(ready: Ready):
    _, saved = await checkpoint(ready)
    merge = Job(ready.team, await ready.team.ask(MergeCheckpoint(checkpoint_id=saved)))
    await merge.grant(1, "job")
    await merge.lose(1, "job")
    await merge.fact(JobQueued, 2)
    await merge.end(1, "failed", kind="job", error="too late")
    await merge.grant(2, "job")
    await merge.end(2, "failed", kind="job", error="no space")
    view = await merge.ends()
    assert (view.status, view.error) == ("failed", "no space")
    assert (await merge.fact(JobFailed)).error == "no space"
    assert (await ready.team.ask(GetModel(model_id=view.model_id))).status == "error"


async def test_a_failed_merge_can_be_asked_for_again(ready: Ready):
    _, saved = await checkpoint(ready)
    first = Job(ready.team, await ready.team.ask(MergeCheckpoint(checkpoint_id=saved)))
    await first.grant(1, "job")
    await first.end(1, "completed", kind="job")
    assert "without leaving anything" in ((await first.ends()).error or "")
    second = await ready.team.ask(MergeCheckpoint(checkpoint_id=saved))
    assert second.id != first.job_id
    assert second.status == "queued"
