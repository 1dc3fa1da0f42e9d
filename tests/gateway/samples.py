"""One answer of every kind, as its owner would give it."""

from __future__ import annotations

from datetime import UTC, datetime

from libs.common.contracts import code, datasets, metrics, models, requests, rollouts, runs, work, workspaces
from libs.common.contracts.blobs import ArtifactFile, BlobRef
from libs.common.contracts.dead_letters import DeadLetterPage
from libs.common.contracts.recipes import (
    BaseModelSnapshot,
    CodeSnapshot,
    DatasetSnapshot,
    Recipe,
    RewardChoice,
    RewardRef,
    RunConfig,
)
from libs.common.contracts.requests import Reply
from libs.common.identifiers import (
    CheckpointId,
    DatasetId,
    JobId,
    KeyId,
    ModelId,
    NodeId,
    ProjectId,
    RolloutId,
    RunId,
    SyncId,
    WorkspaceId,
)

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
MINE, THEIRS = WorkspaceId("ws_mine"), WorkspaceId("ws_theirs")
PROJECT, RUN, DATASET = ProjectId("prj_1"), RunId("run_1"), DatasetId("ds_1")

CONFIG = RunConfig(base_model="tiny", dataset=DATASET, rewards=[RewardChoice(name="compute.spread")])
BLOB = BlobRef(key="models/mdl_1/model.safetensors", size=1, sha256="0" * 64)

WORKSPACE = workspaces.WorkspaceView(id=MINE, name="mine", timezone="UTC", created_at=AT)
KEY = workspaces.KeyView(
    id=KeyId("key_1"), prefix="osm_1", description="", created_at=AT, last_used_at=None, revoked_at=None
)
PROJECT_VIEW = workspaces.ProjectView(
    id=PROJECT,
    workspace_id=MINE,
    name="additions",
    description="",
    rollout_mode="local",
    repository=None,
    branch=None,
    sync_id=None,
    created_at=AT,
    updated_at=AT,
)
SYNC = code.SyncView(
    id=SyncId("sync_1"),
    project_id=PROJECT,
    status="success",
    commit="a" * 40,
    author="A",
    message="first",
    findings=[],
    errors=[],
    created_at=AT,
    ended_at=AT,
)
DATASET_VIEW = datasets.DatasetView(
    id=DATASET,
    name="rows",
    file_name="rows.jsonl",
    format="jsonl",
    size=0,
    status="pending",
    report=None,
    error=None,
    preview=[],
    created_at=AT,
    updated_at=AT,
)
BASE_MODEL = models.BaseModelView(
    id=ModelId("mdl_base"),
    name="tiny",
    source="tiny",
    status="ready",
    error=None,
    licence="apache-2.0",
    size=1,
    created_at=AT,
)
RUN_VIEW = runs.RunView(
    id=RUN,
    project_id=PROJECT,
    name="tiny",
    notes="",
    status="running",
    legacy_status="running",
    epoch=1,
    attempts=1,
    step=1,
    total_steps=3,
    reward=0.5,
    validation_before=None,
    validation_after=None,
    error=None,
    config=CONFIG,
    created_at=AT,
    started_at=AT,
    ended_at=None,
)
RECIPE = Recipe(
    run_id=RUN,
    workspace_id=MINE,
    project_id=PROJECT,
    config=CONFIG,
    base_model=BaseModelSnapshot(model_id=ModelId("mdl_base"), name="tiny", manifest=BLOB),
    dataset=DatasetSnapshot(dataset_id=DATASET, rows=1, content=BLOB, index=BLOB),
    code=CodeSnapshot(sync_id=SyncId("sync_1"), commit="a" * 40, archive=BLOB, has_tools=False),
    rewards=[
        RewardRef(
            name="compute.spread", kind="reward", file="reward_fn/compute.py", function="spread", weight=1.0
        )
    ],
)
CHECKPOINT = models.CheckpointView(
    id=CheckpointId("ckpt_1"),
    run_id=RUN,
    step=3,
    epoch=1,
    size=1,
    metrics={"rollout/raw_reward": 0.5},
    model_id=None,
    created_at=AT,
)
JOB = models.JobView(
    id=JobId("job_1"),
    kind="merge",
    status="queued",
    model_id=ModelId("mdl_1"),
    error=None,
    created_at=AT,
    ended_at=None,
)
MODEL = models.ModelView(
    id=ModelId("mdl_1"),
    name="tiny",
    run_id=RUN,
    checkpoint_id=CheckpointId("ckpt_1"),
    base_model_id=ModelId("mdl_base"),
    status="ready",
    error=None,
    size=1,
    exported=True,
    created_at=AT,
)
ROLLOUT = rollouts.RolloutView(
    id=RolloutId("ro_1"),
    run_id=RUN,
    epoch=1,
    step=1,
    phase="train",
    row_index=0,
    sample_index=0,
    status="completed",
    reward=1.0,
    finish_reason="stop",
    turns=1,
    tool_calls=0,
    tokens=5,
    error=None,
    created_at=AT,
    ended_at=AT,
)
NODE = work.NodeView(
    id=NodeId("node_1"), name="here", devices=["cpu:0"], free=["cpu:0"], state="ready", last_seen=AT
)

ANSWERS: dict[type[Reply], Reply] = {
    type(sample): sample
    for sample in (
        requests.Done(),
        WORKSPACE,
        workspaces.WorkspacePage(items=[WORKSPACE]),
        KEY,
        workspaces.KeyPage(items=[KEY]),
        PROJECT_VIEW,
        workspaces.ProjectPage(items=[PROJECT_VIEW], next_cursor=PROJECT),
        SYNC,
        code.SyncPage(items=[SYNC]),
        DATASET_VIEW,
        datasets.DatasetPage(items=[DATASET_VIEW]),
        BASE_MODEL,
        models.BaseModelPage(items=[BASE_MODEL]),
        RUN_VIEW,
        runs.RunPage(items=[RUN_VIEW]),
        runs.FrozenRecipe(recipe=RECIPE),
        runs.Transitions(items=[runs.Transition(at=AT, status="queued", event="run.queued", epoch=0)]),
        CHECKPOINT,
        models.CheckpointPage(items=[CHECKPOINT]),
        JOB,
        MODEL,
        models.ModelPage(items=[MODEL]),
        models.ModelFiles(files=[ArtifactFile(path="model.safetensors", blob=BLOB)]),
        rollouts.RolloutPage(items=[ROLLOUT]),
        rollouts.RolloutDetail(rollout=ROLLOUT, trajectory=None),
        metrics.RunMetrics(run_id=RUN, series=[]),
        metrics.Exposition(text="osmosis_runs 1\n"),
        work.Nodes(nodes=[NODE], leases=[], queue=[]),
        work.QueuePosition(entry=None),
        DeadLetterPage(items=[]),
    )
}
