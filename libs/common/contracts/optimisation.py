"""How the policy is optimised: the part of a run's configuration that trainer and registry share. No torch here."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class LoraConfig(BaseModel):
    """The adapter that is trained (Hu et al. 2021, arXiv 2106.09685)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=32, ge=1, le=512)
    alpha: float | None = Field(default=None, gt=0, description="None: twice the rank")
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] | Literal["all-linear"] = "all-linear"

    @property
    def scale_numerator(self) -> float:
        """Alpha, with the default filled in."""
        return self.alpha if self.alpha is not None else 2.0 * self.rank


class OptimisationConfig(BaseModel):
    """Group-relative policy optimisation as TRL's GRPOTrainer does it.

    A step takes `global_batch_size` samples: `global_batch_size / n_samples_per_prompt` rows, each sampled
    `n_samples_per_prompt` times. The run ends after `total_epochs` passes over the rows, or `max_steps` where given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    lr: float = Field(default=1e-6, gt=0, le=1)
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    n_samples_per_prompt: int = Field(default=8, ge=2, le=1024)
    global_batch_size: int = Field(default=64, ge=2, le=65536, description="samples a step")
    total_epochs: int = Field(default=1, ge=1, le=10_000)
    max_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    updates_per_batch: int = Field(default=1, ge=1, le=64, description="passes over a step's samples")
    micro_batch_size: int = Field(default=16, ge=1, le=4096, description="sequences in one forward pass")
    kl_coefficient: float = Field(default=0.0, ge=0, le=10, description="against the base model; 0: none")
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0, le=10)
    importance_correction: bool = Field(
        default=True, description="correct for the difference between sampler and trainer, truncated"
    )
    lora: LoraConfig = LoraConfig()

    @model_validator(mode="after")
    def _batch_is_whole_groups(self) -> Self:
        if self.global_batch_size % self.n_samples_per_prompt:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} is not a multiple of"
                f" n_samples_per_prompt {self.n_samples_per_prompt}; change one of them"
            )
        return self

    @property
    def rows_per_step(self) -> int:
        """Dataset rows (groups) that one step samples."""
        return self.global_batch_size // self.n_samples_per_prompt

    def total_steps(self, rows: int) -> int:
        """Steps of a run over `rows` training rows; the last step of a pass takes what is left."""
        if self.max_steps is not None:
            return self.max_steps
        return self.total_epochs * -(-rows // self.rows_per_step)
