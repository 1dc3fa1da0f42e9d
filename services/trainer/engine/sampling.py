"""What a policy engine is asked and what it answers. No torch here: the broker's peers speak in these terms."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field


class SampleRequest(BaseModel):
    """One answer to sample behind `prompt_ids`.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 cut nothing. `seed` alone decides the randomness of the sample,
    whatever else is in the batch.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt_ids: list[int] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    stop: list[str] = Field(default_factory=list[str])
    stop_token_ids: list[int] = Field(default_factory=list[int])
    seed: int = 0
    rollout_id: str = ""


class SampleResult(BaseModel):
    """Sampled tokens, the stop token included where one was sampled.

    `logprobs`: one per token, nats, of the distribution that was sampled from (tempered and truncated); a greedy
    sample has those of the untempered distribution. `version`: the policy version of every token.
    """

    model_config = ConfigDict(frozen=True)

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    version: int


class Overloaded(Exception):
    """More requests wait than the engine takes; the same request may succeed later."""


class PolicyEngine(Protocol):
    """Samples from the newest published version of a policy."""

    @property
    def version(self) -> int:
        """The version that samples now."""
        ...

    async def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one answer.

        Raises:
            Overloaded: too many requests wait.
            ValueError: the prompt and `max_tokens` do not fit into the model's context.
        """
        ...
