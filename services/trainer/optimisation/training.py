"""One attempt's training, from its first step to its last, with state that can be saved between any two."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers.utils import logging as transformers_logging
from trl.trainer.grpo_config import GRPOConfig

from libs.common.contracts.optimisation import OptimisationConfig
from services.trainer.artifacts.checkpoints import load_checkpoint, save_checkpoint
from services.trainer.optimisation.group_trainer import GroupTrainer
from services.trainer.optimisation.job import GroupSource, StepListener, TrainingJob
from services.trainer.optimisation.policy import Policy
from services.trainer.optimisation.schedule import optimiser_of, scheduler_of

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


class Training:
    """The optimiser's side of a run. Make it, then `run`; `save` at any time between two steps."""

    def __init__(self, job: TrainingJob, policy: Policy, source: GroupSource, listener: StepListener) -> None:
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        datasets.disable_progress_bars()
        self.last_step = job.from_step
        self._job, self._policy, self._listener, self._source = job, policy, listener, source
        config = job.config.training
        parameters = [p for p in policy.model.parameters() if p.requires_grad]
        self._optimiser = optimiser_of(config, parameters)
        updates = config.updates_per_batch
        self._scheduler = scheduler_of(config, self._optimiser, job.total_steps * updates)
        self._trainer = GroupTrainer(
            next_groups=self._next_groups,
            finished=self._finished,
            first_step=job.from_step + 1,
            rows_per_step=config.rows_per_step,
            corrects_importance=config.importance_correction and _samples_whole_distribution(job),
            model=policy.model,
            processing_class=policy.tokenizer,
            args=_arguments(job, policy.dtype),
            train_dataset=datasets.Dataset.from_dict({"prompt": [""] * config.rows_per_step}),
            optimizers=(self._optimiser, self._scheduler),
        )
        if job.checkpoint is not None:
            load_checkpoint(job.checkpoint, policy.model, self._optimiser, self._scheduler)
        policy.publish(job.from_step)

    def run(self) -> None:
        """Make every step that is left. What source or listener raise comes out; `last_step` says how far it got."""
        if self.last_step < self._job.total_steps:
            self._trainer.train()

    def save(self, folder: Path, metrics: dict[str, float]) -> None:
        """Write a checkpoint of the last finished step into an empty folder."""
        save_checkpoint(
            folder,
            self._policy.model,
            self._optimiser,
            self._scheduler,
            step=self.last_step,
            base_model=self._job.base_model.name,
            config=self._job.config,
            metrics=metrics,
        )

    def _next_groups(self, step: int) -> Any:
        return self._source.next_groups(step, self._policy.engine.version)

    def _finished(self, step: int, metrics: dict[str, float]) -> None:
        self._policy.publish(step)
        self.last_step = step
        self._listener.on_step(step, metrics)


def _arguments(job: TrainingJob, dtype: torch.dtype) -> GRPOConfig:
    """TRL's words for the run's configuration."""
    config: OptimisationConfig = job.config.training
    micro = _micro_batch(config)
    on_cpu = job.device == "cpu"
    return GRPOConfig(
        output_dir=str(job.work_folder),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.global_batch_size // micro,
        steps_per_generation=config.global_batch_size // micro,
        num_iterations=config.updates_per_batch,
        num_generations=config.n_samples_per_prompt,
        max_steps=(job.total_steps - job.from_step) * config.updates_per_batch,
        max_completion_length=job.config.sampling.max_response_length,
        temperature=job.config.sampling.temperature or 1.0,
        loss_type=config.loss,
        scale_rewards=config.scale_rewards,
        beta=config.kl_coefficient,
        epsilon=config.clip_low,
        epsilon_high=config.clip_high,
        learning_rate=config.lr,
        max_grad_norm=config.max_grad_norm,
        shuffle_dataset=False,
        seed=job.config.seed,
        use_cpu=on_cpu,
        bf16=dtype == torch.bfloat16,
        gradient_checkpointing=not on_cpu,
        report_to="none",
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def _samples_whole_distribution(job: TrainingJob) -> bool:
    """Whether the sampler's log-probabilities are of the distribution that is trained: nothing cut off, tempered alike."""
    sampling = job.config.sampling
    return sampling.top_p == 1 and sampling.top_k == 0 and sampling.temperature > 0


def _micro_batch(config: OptimisationConfig) -> int:
    """The largest divisor of the batch that is no larger than the configured micro-batch."""
    top = min(config.micro_batch_size, config.global_batch_size)
    return next(size for size in range(top, 0, -1) if config.global_batch_size % size == 0)
