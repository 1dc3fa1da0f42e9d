"""What a reward function gets of a trajectory."""

from __future__ import annotations

from typing import Any

import pytest

from services.rewards.domain.inputs import RewardInput, call_inputs, solution_of

CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "the last answer": ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "b"),
    "the last with content": (
        [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}, {"role": "assistant", "content": ""}],
        "a",
    ),
    "content of none": ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None}], "a"),
    "parts": (
        [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}]}],
        "ab",
    ),
    "no answer": ([{"role": "user", "content": "q"}], ""),
    "nothing": ([], ""),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "expected"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_the_solution_is_the_text_of_the_last_answer_with_content(
    messages: list[dict[str, Any]], expected: str
) -> None:
    assert solution_of(messages) == expected


def test_extra_info_has_the_row_and_its_own_words_win() -> None:
    row = {"num_turns": "the row's", "level": 2}
    inputs = call_inputs(RewardInput("r1", [], "7", row, num_turns=3))
    assert inputs["extra_info"] == {"metadata": row, "num_turns": "the row's", "rollout_id": "r1", "level": 2}
    assert inputs["metadata"] == row
    assert inputs["data_source"] is None


def test_extra_info_is_never_null() -> None:
    assert call_inputs(RewardInput("r1", [], None))["extra_info"] == {
        "metadata": {},
        "num_turns": 0,
        "rollout_id": "r1",
    }
