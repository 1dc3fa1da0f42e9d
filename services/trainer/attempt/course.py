"""A training run's course: where each step's groups come from, and what follows when a step is done.

Runs in the computing thread. Guaranteed: a checkpoint of step k is of the state after step k and before any of step
k + 1, whatever interrupted the training; validations are sampled from the version of their step and never trained on.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from transformers import set_seed

from libs.common.contracts.attempts import BatchOrder, Ended, StepReport
from libs.common.contracts.recipes import Recipe
from libs.common.contracts.rollouts import Phase
from libs.common.contracts.trajectories import Group
from libs.common.telemetry.traces import span
from services.trainer.attempt.batches import Batches, batch_order
from services.trainer.attempt.checkpoints import keep_checkpoint
from services.trainer.attempt.context import Context, Talk, WorkFailed
from services.trainer.attempt.control import Told
from services.trainer.attempt.rows import Split, batch_seed, rows_of_step
from services.trainer.attempt.scores import rollout_metrics, validation_metrics, why_none_was_scored
from services.trainer.optimisation.job import TrainingJob
from services.trainer.optimisation.policy import Policy
from services.trainer.optimisation.training import Training

_log = structlog.get_logger(__name__)


@dataclass
class _Progress:
    """What this attempt has done so far. Times of `time.perf_counter`, seconds."""

    step_began: float
    saved_step: int | None = None
    validated_step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Of the last step, with the validation at it: they go into its checkpoint."""
    carried: dict[str, float] = field(default_factory=dict[str, float])
    """Figures of what was done between two steps; reported with the next one."""


class Course:
    """Source and listener of one attempt's training."""

    def __init__(self, context: Context, talk: Talk, recipe: Recipe, job: TrainingJob, split: Split) -> None:
        self._context = context
        self._talk = talk
        self._recipe = recipe
        self._job = job
        self._split = split
        self._batches = Batches(context.link, context.blobs, context.control)
        self._progress = _Progress(step_began=time.perf_counter())

    def run(self, policy: Policy, setup_s: float) -> Ended:
        """Train to the end, or until told to stop; `setup_s` seconds went by before."""
        self._progress.carried["time/setup_s"] = setup_s
        training = Training(self._job, policy, self, self)
        self._training = training
        try:
            if self._job.from_step == 0 and self._recipe.config.validation.at_start:
                self._validate(0)
            self._progress.step_began = time.perf_counter()
            training.run()
            self._finish()
        except Told as told:
            return self._stopped(told)
        return Ended(outcome="completed", step=training.last_step)

    def next_groups(self, step: int, version: int) -> Sequence[Group]:
        """The groups of a step.

        Raises:
            Told: the attempt was told to stop.
            WorkFailed: no sample of the run's first batch has a reward.
        """
        config = self._recipe.config
        rows = rows_of_step(self._split.training, config.training.rows_per_step, step, config.seed)
        order, groups = self._sample("train", step, rows)
        if step == 1 and config.scoring.fail_first_batch and (why := why_none_was_scored(groups)):
            raise WorkFailed(
                "no sample of the first batch got a reward, so there is nothing to learn from."
                f" Mend what the errors name and start the run again: {why}"
            )
        self._progress.carried |= rollout_metrics(groups, len(order.groups) * order.n_samples)
        # The update's randomness (dropout) follows from the step alone, wherever this attempt began.
        set_seed(batch_seed(config.seed, "update", step))
        return groups

    def on_step(self, step: int, metrics: dict[str, float]) -> None:
        """Report the step, then validate and save where it is time to.

        Raises:
            Told: the attempt was told to stop.
        """
        progress, config = self._progress, self._recipe.config
        now = time.perf_counter()
        metrics = metrics | progress.carried | {"time/step_s": now - progress.step_began}
        progress.step_began, progress.carried, progress.metrics = now, {}, metrics
        self._report(step, "train", metrics)
        if _due(step, config.validation.interval):
            self._validate(step)
        if _due(step, config.checkpoints.interval):
            self._save()
        if step < self._job.total_steps:
            self._context.control.check()

    def _finish(self) -> None:
        """What comes after the last step."""
        last = self._training.last_step
        if self._recipe.config.validation.at_end and self._progress.validated_step != last:
            self._validate(last)
        self._save()

    def _stopped(self, told: Told) -> Ended:
        step = self._training.last_step
        if told.directive == "cancel":
            return Ended(outcome="cancelled", step=step)
        self._save()
        return Ended(outcome="paused", step=step)

    def _sample(self, phase: Phase, step: int, rows: tuple[int, ...]) -> tuple[BatchOrder, list[Group]]:
        order = batch_order(self._recipe, self._context.epoch, phase, step, rows)
        timeout_s = self._recipe.config.scoring.timeout_s
        with span(f"{phase} batch", run=self._recipe.run_id, step=str(step)):
            return order, self._talk.wait(self._batches.sample(order, timeout_s))

    def _validate(self, step: int) -> None:
        if not self._split.held_out:
            return
        began = time.perf_counter()
        order, groups = self._sample("validation", step, self._split.held_out)
        metrics = validation_metrics(groups, len(order.groups) * order.n_samples)
        seconds = time.perf_counter() - began
        self._report(step, "validation", metrics | {"time/validation_s": seconds})
        self._progress.validated_step = step
        self._progress.metrics |= metrics
        self._progress.step_began += seconds

    def _save(self) -> None:
        """Keep the state of the last finished step, unless it is kept already or is where this attempt began."""
        step = self._training.last_step
        if step in (self._job.from_step, self._progress.saved_step):
            return
        began = time.perf_counter()
        folder = self._context.scratch / f"checkpoint-{step}"
        self._training.save(folder, _finite(self._progress.metrics))
        metrics = _finite(self._progress.metrics)
        self._talk.wait(keep_checkpoint(self._context, self._recipe, folder, step, metrics))
        shutil.rmtree(folder)
        self._progress.saved_step = step
        seconds = time.perf_counter() - began
        self._progress.carried["time/checkpoint_s"] = seconds
        self._progress.step_began += seconds

    def _report(self, step: int, phase: Phase, metrics: dict[str, float]) -> None:
        finite = _finite(metrics)
        report = StepReport(step=step, total_steps=self._job.total_steps, phase=phase, metrics=finite)
        self._talk.wait(self._context.link.report_step(report))
        _log.info("step done", step=step, of=self._job.total_steps, phase=phase, **finite)


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    """JSON has no word for the others, and a curve no place."""
    return {key: value for key, value in metrics.items() if math.isfinite(value)}
