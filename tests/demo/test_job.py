"""The job's configurations are ones that the platform takes."""

from __future__ import annotations

import json
from pathlib import Path

from examples.demo.job import STEPS, TOOL_STEPS, additions, additions_with_tools
from libs.common.contracts.recipes import RunConfig

WORKSPACE = Path(__file__).parent.parent.parent / "examples" / "calculator-workspace"


def test_the_additions_are_a_valid_run() -> None:
    config = RunConfig.model_validate(additions("mdl_1", "ds_1", "ds_2"))
    assert config.training.max_steps == STEPS
    assert config.validation.dataset == "ds_2"
    assert config.validation.at_start and config.validation.at_end
    assert config.rollout.tools == []
    assert RunConfig.model_validate(additions("m", "d", "h", steps=3)).training.max_steps == 3


def test_the_additions_with_tools_are_a_valid_run() -> None:
    config = RunConfig.model_validate(additions_with_tools("mdl_1", "ds_1"))
    assert config.training.max_steps == TOOL_STEPS
    assert config.rollout.tools == "all"
    assert config.rollout.max_turns > 1


def test_no_held_out_row_is_trained_on() -> None:
    train, heldout = (
        {json.loads(line)["user_prompt"] for line in (WORKSPACE / name).read_text().splitlines()}
        for name in ("train.jsonl", "heldout.jsonl")
    )
    assert train and heldout and not train & heldout


def test_a_step_never_takes_a_row_twice() -> None:
    rows = len((WORKSPACE / "train.jsonl").read_text().splitlines())
    assert RunConfig.model_validate(additions("m", "d", "h")).training.rows_per_step <= rows
