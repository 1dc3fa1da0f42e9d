"""What a reward function is called with, made from one trajectory. Pure.

The keywords are those that workspace repositories are promised: `solution_str`, `ground_truth`, `extra_info`,
`data_source`, and for functions that take the conversation `messages` and `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast


@dataclass(frozen=True)
class FunctionRef:
    """A function of the repository: `name` as shown (`file stem.function`), `file` relative to the root."""

    name: str
    file: str
    function: str
    kind: Literal["reward", "rubric"] = "reward"


@dataclass(frozen=True)
class RewardInput:
    """One sample to score. `metadata`: the row's further columns. `ground_truth` is None only for rubrics."""

    sample_id: str
    messages: Sequence[Mapping[str, Any]]
    ground_truth: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    num_turns: int = 0


def solution_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Text of the last assistant message that has content; empty when there is none."""
    for message in reversed(messages):
        text = _text(message.get("content")) if message.get("role") == "assistant" else ""
        if text:
            return text
    return ""


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        cast("dict[str, object]", part) for part in cast("list[object]", content) if isinstance(part, dict)
    ]
    return "".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


def call_inputs(sample: RewardInput) -> dict[str, Any]:
    """Every keyword that a function may ask for; which of them it gets is decided beside its signature."""
    row = dict(sample.metadata)
    extra = {"metadata": dict(row), "num_turns": sample.num_turns, "rollout_id": sample.sample_id, **row}
    return {
        "solution_str": solution_of(sample.messages),
        "ground_truth": sample.ground_truth,
        "extra_info": extra,
        "data_source": row.get("data_source"),
        "messages": [dict(message) for message in sample.messages],
        "metadata": row,
    }
