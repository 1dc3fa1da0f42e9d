"""What a run is made of: `RunConfig` as a user writes it, `Recipe` as the registry froze it.

A recipe names exact content (commit, dataset version, base model revision), so a run can be said again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Contract
from libs.common.contracts.optimisation import OptimisationConfig
from libs.common.identifiers import (
    CheckpointId,
    DatasetId,
    JobId,
    ModelId,
    ProjectId,
    RunId,
    SyncId,
    WorkId,
    WorkspaceId,
)


class _Strict(BaseModel):
    """Configuration that users write: an unknown field is an error, so that a typo never passes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RewardChoice(_Strict):
    """One reward function of the synced repository and its weight in the sum."""

    name: str = Field(description="file stem and function, e.g. compute_reward.last_integer_matches")
    weight: float = Field(default=1.0, ge=-1000, le=1000)


class SamplingConfig(_Strict):
    """How the policy samples in rollouts."""

    temperature: float = Field(default=1.0, ge=0, le=5)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="0: no limit")
    max_response_length: int = Field(default=512, ge=1, le=131072, description="tokens of one answer")
    stop: list[str] = Field(default_factory=list[str], max_length=16)


class RolloutConfig(_Strict):
    """The agent loop and its limits. Times in seconds."""

    mode: Literal["local"] = "local"
    max_turns: int = Field(default=10, ge=1, le=1000)
    max_tokens_total: int = Field(default=8192, ge=1, description="prompt and answers of one rollout, tokens")
    tools: list[str] | Literal["all"] = Field(
        default="all", description="names of MCP tools of the synced repository, or all of them"
    )
    timeout_s: float = Field(default=600, gt=0, le=86400, description="deadline of one rollout")
    tool_timeout_s: float = Field(default=30, gt=0, le=3600)
    max_replacements: int = Field(
        default=1, ge=0, le=100, description="new rollouts in place of failed ones, a group"
    )


class ScoringConfig(_Strict):
    """Limits of a call of a reward function, and when a run gives up."""

    timeout_s: float = Field(default=10, gt=0, le=600)
    memory_mb: int = Field(default=1024, ge=64, le=65536)
    fail_first_batch: bool = Field(
        default=True, description="fail the run when no sample of its first batch got a reward"
    )


class ValidationConfig(_Strict):
    """Held-out rows: a dataset of their own, else a share of the training rows. Sampled greedily by default."""

    dataset: str | None = Field(default=None, description="dataset id; wins over share")
    share: float = Field(default=0.0, ge=0, lt=1)
    at_start: bool = True
    at_end: bool = True
    interval: int = Field(default=0, ge=0, description="every so many steps; 0: never in between")
    n_samples: int = Field(default=1, ge=1, le=64)
    temperature: float = Field(default=0.0, ge=0, le=5)
    max_rows: int = Field(default=256, ge=1, le=100_000)


class CheckpointConfig(_Strict):
    """When checkpoints are saved and how many are kept; the last one of a run is always saved."""

    interval: int = Field(
        default=20, ge=0, description="every so many steps; 0: only at the end and on pause"
    )
    keep: int = Field(default=3, ge=1, le=1000)


class ResourceConfig(_Strict):
    """What one attempt needs: GPUs, else CPU slots."""

    gpus: int = Field(default=0, ge=0, le=1024)
    slots: int = Field(default=1, ge=1, le=1024, description="CPU slots, used when gpus is 0")
    priority: int = Field(default=0, ge=-100, le=100)


class RunConfig(_Strict):
    """A run as a user asks for it. Names and ids are resolved, and everything checked at once, by the registry."""

    name: str = Field(default="", max_length=128)
    notes: str = Field(default="", max_length=10_000)
    base_model: str = Field(description="id or name of a registered base model")
    dataset: str = Field(description="dataset id")
    rewards: Annotated[list[RewardChoice], Field(min_length=1, max_length=32)]
    rollout: RolloutConfig = RolloutConfig()
    sampling: SamplingConfig = SamplingConfig()
    scoring: ScoringConfig = ScoringConfig()
    training: OptimisationConfig = OptimisationConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    resources: ResourceConfig = ResourceConfig()
    seed: int = Field(default=0, ge=0, lt=2**31)
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="attempts before a run that loses nodes fails"
    )


class DatasetSnapshot(Contract):
    """A validated dataset: canonical JSONL (one row object a line) and the byte offset of every row.

    `index`: little-endian uint64 offsets, rows + 1 of them, so that row i is bytes offsets[i]..offsets[i + 1].
    """

    dataset_id: DatasetId
    rows: int
    content: BlobRef
    index: BlobRef


class CodeSnapshot(Contract):
    """A synced commit: a deterministic tar of its tree, and where each chosen reward function lives."""

    sync_id: SyncId
    commit: str
    archive: BlobRef
    has_tools: bool


class RewardRef(Contract):
    """A reward function or rubric to call: module file relative to the root, function name, weight."""

    name: str
    kind: Literal["reward", "rubric"]
    file: str
    function: str
    weight: float


class BaseModelSnapshot(Contract):
    """A base model: `manifest` refers to an ArtifactManifest of a Hugging Face folder."""

    model_id: ModelId
    name: str
    licence: str = "unknown"
    manifest: BlobRef


class Recipe(Contract):
    """Everything a run depends on, frozen."""

    run_id: RunId
    workspace_id: WorkspaceId
    project_id: ProjectId
    config: RunConfig
    base_model: BaseModelSnapshot
    dataset: DatasetSnapshot
    validation_dataset: DatasetSnapshot | None = None
    code: CodeSnapshot
    rewards: list[RewardRef]


class TrainOrder(Contract):
    """Work of an attempt: train by a recipe, from a checkpoint where there is one."""

    kind: Literal["train"] = "train"
    recipe: Recipe


class MergeOrder(Contract):
    """Work of an attempt: merge a checkpoint's adapter into its base model."""

    kind: Literal["merge"] = "merge"
    job_id: JobId
    workspace_id: WorkspaceId
    model_id: ModelId = Field(description="id that the merged model will have")
    checkpoint_id: CheckpointId
    base_model: BaseModelSnapshot
    checkpoint: BlobRef = Field(description="manifest of the checkpoint")


class ExportOrder(Contract):
    """Work of an attempt: a merged model as a Hugging Face folder with a model card, kept in the blob store."""

    kind: Literal["export"] = "export"
    job_id: JobId
    workspace_id: WorkspaceId
    model_id: ModelId
    model: BlobRef = Field(description="manifest of the merged model")
    base_model: BaseModelSnapshot
    recipe: dict[str, Any]
    metrics: dict[str, float]


WorkOrder = Annotated[TrainOrder | MergeOrder | ExportOrder, Field(discriminator="kind")]


class ResumePoint(Contract):
    """The checkpoint that an attempt starts from."""

    checkpoint_id: CheckpointId
    step: int
    manifest: BlobRef


def work_id_of(order: TrainOrder | MergeOrder | ExportOrder) -> WorkId:
    """The id that scheduler and trainer know the work by."""
    return WorkId(order.recipe.run_id if isinstance(order, TrainOrder) else order.job_id)
