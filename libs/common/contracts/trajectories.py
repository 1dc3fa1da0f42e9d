"""What a rollout leaves behind, token by token: the contract between rollout broker, rewards and trainer.

Guaranteed here: the token ids, log-probabilities and versions of a branch are those of the sampler; nobody
re-tokenises an answer. Every sampled answer is trainable in exactly one branch: where a later branch repeats an
answer in its history, the answer stands there as context (not in `sampled`).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SampledSpan(_Frozen):
    """One answer of the policy inside a branch.

    `logprobs`: one per token, float32 in nats, of the sampling distribution (temperature and truncation applied
    as the engine sampled them). `version`: the policy version that sampled every token of the span.
    """

    start: int = Field(ge=0, description="index in the branch's token_ids of the first sampled token")
    logprobs: list[float]
    version: int = Field(ge=0)
    temperature: float = 1.0
    finish_reason: Literal["stop", "length", "tool_calls"] = "stop"

    @property
    def stop(self) -> int:
        """Index after the last sampled token."""
        return self.start + len(self.logprobs)


class Branch(_Frozen):
    """A sequence of tokens as the policy saw it: context and sampled answers in order."""

    token_ids: list[int]
    sampled: list[SampledSpan]

    @model_validator(mode="after")
    def _spans_lie_inside_and_apart(self) -> Self:
        edge = 0
        for span in self.sampled:
            if span.start < edge or span.stop > len(self.token_ids):
                raise ValueError(f"sampled span {span.start}..{span.stop} overlaps or leaves the branch")
            edge = span.stop
        return self


class RewardComponent(_Frozen):
    """What one reward function or rubric said of one trajectory."""

    name: str
    value: float | None
    weight: float = 1.0
    duration_ms: float = 0.0
    output: str = ""
    error: str | None = None


class Trajectory(_Frozen):
    """One finished rollout. `reward` is None when there is none: it must never be read as 0."""

    rollout_id: str
    group_id: str
    row_index: int
    sample_index: int
    status: Literal["completed", "failed"]
    finish_reason: str = "stop"
    error: str | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    branches: list[Branch] = Field(default_factory=list[Branch])
    ground_truth: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    reward: float | None = None
    components: list[RewardComponent] = Field(default_factory=list[RewardComponent])
    turns: int = 0
    tool_calls: int = 0
    duration_ms: float = 0.0
    policy_ms: float = 0.0


class Group(_Frozen):
    """The n trajectories of one dataset row, sampled for one step of one attempt."""

    group_id: str
    run_id: str
    epoch: int
    batch_id: str
    row_index: int
    trajectories: list[Trajectory]
