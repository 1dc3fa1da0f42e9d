"""A training attempt: brings its inputs, opens policy and engine, and runs the course.

The tensor libraries are loaded in the computing thread: they take seconds, and heartbeats must not wait for them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog

from libs.common.blobs.folders import download_folder
from libs.common.contracts.attempts import Ended, Started
from libs.common.contracts.recipes import Recipe, ResumePoint
from services.trainer.attempt.context import Context, Talk, WorkFailed
from services.trainer.attempt.rows import Split, held_out_rows

_log = structlog.get_logger(__name__)


async def train(context: Context, recipe: Recipe, resume: ResumePoint | None) -> Ended:
    """Train by a recipe, from a checkpoint where there is one.

    Raises:
        WorkFailed: the recipe leaves nothing to train on.
    """
    began = time.perf_counter()
    split = split_of(recipe)
    if not split.training:
        raise WorkFailed("the dataset has no rows to train on; choose one with rows")
    base = await download_folder(context.blobs, recipe.base_model.manifest, context.cache / "base-models")
    checkpoint = None
    if resume is not None:
        checkpoint = await download_folder(context.blobs, resume.manifest, context.scratch / "resume")
    _log.info("inputs are here", seconds=round(time.perf_counter() - began, 3), resumed=resume is not None)
    talk = Talk(asyncio.get_running_loop())
    from_step = resume.step if resume is not None else 0
    return await asyncio.to_thread(_compute, context, talk, recipe, split, base, checkpoint, from_step, began)


def split_of(recipe: Recipe) -> Split:
    """Rows to train on and rows to validate on: of a validation dataset where there is one, else held out."""
    config = recipe.config.validation
    if recipe.validation_dataset is not None:
        every = tuple(range(recipe.dataset.rows))
        return Split(every, tuple(range(min(recipe.validation_dataset.rows, config.max_rows))))
    return held_out_rows(recipe.dataset.rows, config.share, recipe.config.seed, config.max_rows)


def _compute(
    context: Context,
    talk: Talk,
    recipe: Recipe,
    split: Split,
    base: Path,
    checkpoint: Path | None,
    from_step: int,
    began: float,
) -> Ended:
    from services.trainer.attempt.course import Course
    from services.trainer.engine.server import engine_server
    from services.trainer.optimisation.job import TrainingJob
    from services.trainer.optimisation.policy import Policy

    settings = context.settings
    job = TrainingJob(
        base_model=base,
        config=recipe.config,
        total_steps=recipe.config.training.total_steps(len(split.training)),
        work_folder=context.scratch / "optimisation",
        from_step=from_step,
        checkpoint=checkpoint,
        device=settings.device,
    )
    course = Course(context, talk, recipe, job, split)
    policy = Policy.open(job)
    try:
        token = settings.engine_token.get_secret_value()
        with engine_server(policy.engine, token, settings.internal_host, settings.advertised_host) as url:
            started = Started(engine_url=url, total_steps=job.total_steps, from_step=from_step)
            talk.wait(context.link.started(started))
            return course.run(policy, time.perf_counter() - began)
    finally:
        policy.close()
