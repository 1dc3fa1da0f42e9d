"""The job: single-digit addition, as one run configuration. Every number that decides how well it learns stands here."""

from __future__ import annotations

from typing import Any

MODEL_NAME = "SmolLM2-135M-Instruct"
LICENCE = "apache-2.0"
STEPS = 18
TOOL_STEPS = 2

RunConfiguration = dict[str, Any]
"""The body of `POST /v1/projects/{id}/runs`."""


def additions(base_model: str, dataset: str, heldout: str, steps: int | None = None) -> RunConfiguration:
    """Answers of twelve tokens, scored by their last integer, before and after measured on rows never trained on."""
    return {
        "name": "additions",
        "base_model": base_model,
        "dataset": dataset,
        "rewards": [{"name": "compute_reward.last_integer_matches"}],
        "sampling": {"temperature": 1.0, "max_response_length": 12},
        "rollout": {"tools": [], "max_turns": 1},
        "training": {
            "lr": 1e-4,
            "n_samples_per_prompt": 8,
            "global_batch_size": 64,
            "max_steps": steps or STEPS,
            "micro_batch_size": 64,
            "lora": {"rank": 32},
        },
        "validation": {"dataset": heldout, "at_start": True, "at_end": True},
        "checkpoints": {"interval": 0},
        "seed": 1,
    }


def additions_with_tools(base_model: str, dataset: str, steps: int | None = None) -> RunConfiguration:
    """A few small steps in which the first turn of every rollout is scripted to call a tool."""
    return {
        "name": "additions-with-tools",
        "base_model": base_model,
        "dataset": dataset,
        "rewards": [{"name": "compute_reward.last_integer_matches"}],
        "sampling": {"temperature": 1.0, "max_response_length": 24},
        "rollout": {"tools": "all", "max_turns": 3},
        "training": {
            "lr": 1e-5,
            "n_samples_per_prompt": 4,
            "global_batch_size": 8,
            "max_steps": steps or TOOL_STEPS,
            "lora": {"rank": 8},
        },
        "validation": {"share": 0.0, "at_start": False, "at_end": False},
        "checkpoints": {"interval": 0},
        "seed": 1,
    }
