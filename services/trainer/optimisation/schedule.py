"""Optimiser and learning-rate schedule, made here so that their state can be saved and loaded without pickles."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from libs.common.contracts.optimisation import OptimisationConfig


def optimiser_of(config: OptimisationConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101)."""
    return torch.optim.AdamW(
        list(parameters),
        lr=config.lr,
        betas=(config.adam_beta1, config.adam_beta2),
        weight_decay=config.weight_decay,
    )


def scheduler_of(config: OptimisationConfig, optimiser: torch.optim.Optimizer, updates: int) -> LambdaLR:
    """Warm-up, then constant, linear or cosine over `updates` optimiser steps."""
    names = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
    scheduler: Any = get_scheduler(
        names[config.lr_schedule],
        optimizer=optimiser,
        num_warmup_steps=config.warmup_steps,
        num_training_steps=updates,
    )
    return scheduler
