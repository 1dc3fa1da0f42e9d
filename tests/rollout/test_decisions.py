"""State tables, seeds, budgets, messages: decisions without I/O."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rollout.live import Budget, Limits
from services.rollout.messages import Habits, canonical, for_template, without_nulls
from services.rollout.rows import prompt_of
from services.rollout.seeds import SEED_BITS, seed_of
from services.rollout.states import (
    GROUP_MOVES,
    ROLLOUT_MOVES,
    GroupEvent,
    GroupState,
    RolloutEvent,
    RolloutStatus,
)
from tests.rollout.chat_templates import TEMPLATES, write_tokenizer


def test_every_pair_of_state_and_event_is_decided_and_ends_do_not_move() -> None:
    pairs = set(itertools.product(get_args(RolloutStatus), get_args(RolloutEvent)))
    assert pairs >= ROLLOUT_MOVES.keys()
    assert {status for status, _ in ROLLOUT_MOVES} == {"pending", "running", "sampled"}
    pairs = set(itertools.product(get_args(GroupState), get_args(GroupEvent)))
    assert pairs >= GROUP_MOVES.keys()
    assert {state for state, _ in GROUP_MOVES} == {"waiting", "running", "scoring"}


def test_whatever_has_not_ended_can_be_abandoned() -> None:
    assert {status for status, event in ROLLOUT_MOVES if event == "abandon"} == {
        status for status, _ in ROLLOUT_MOVES
    }
    assert {state for state, event in GROUP_MOVES if event == "abandon"} == {
        state for state, _ in GROUP_MOVES
    }


def test_seeds_are_the_same_on_every_machine() -> None:
    assert seed_of(0, 0, 0, 0) == 804999181
    assert seed_of(7, 3, 2, 1, 1) == 411177837


@given(st.sets(st.tuples(*[st.integers(0, 1 << 31)] * 4), min_size=2, max_size=20))
def test_seeds_differ_with_each_part_and_fit(parts: set[tuple[int, int, int, int]]) -> None:
    seeds = [seed_of(*part) for part in parts]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << SEED_BITS for seed in seeds)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.integers(0, 50)), max_size=20))
def test_a_budget_is_never_overdrawn_also_with_chats_side_by_side(chats: list[tuple[int, int, int]]) -> None:
    budget = Budget(Limits(max_turns=5, max_tokens_total=200, context_length=90))
    under_way: list[tuple[int, int]] = []
    spent = 0
    for context, wanted, used in chats:
        granted = budget.grant(prompt=context, context=context, wanted=wanted)
        if granted:
            spent += context
            under_way.append((granted, min(used, granted)))
        assert budget.tokens <= 200 and budget.turns <= 5 and context + granted <= max(90, context)
        if len(under_way) > 2:
            granted, used = under_way.pop(0)
            budget.settle(granted, used)
            spent += used
    for granted, used in under_way:
        budget.settle(granted, used)
        spent += used
    assert budget.tokens == spent


def test_a_turn_that_came_to_nothing_costs_nothing() -> None:
    budget = Budget(Limits(5, 200, 90))
    granted = budget.grant(prompt=10, context=10, wanted=20)
    budget.undo(context=10, granted=granted)
    assert (budget.turns, budget.tokens) == (0, 0)


def test_messages_that_say_the_same_are_equal() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": 2}'}}
    same = {"type": "function", "function": {"arguments": {"b": 2, "a": 1}, "name": "f"}, "id": "1"}
    first = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    second = {"role": "assistant", "content": [], "tool_calls": [same]}
    assert canonical(first) == canonical(second)
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert canonical(parts) == canonical({"role": "user", "content": "ab", "tool_calls": None})
    assert canonical(first) != canonical({**first, "tool_calls": []})


def test_templates_that_know_no_tools_get_them_as_text() -> None:
    call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "assistant", "content": "So:", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
    ]
    known = for_template(messages, Habits())
    assert known[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    told = for_template(messages, Habits(renders_calls=False, renders_results=False))
    assert told == [
        {
            "role": "assistant",
            "content": 'So:\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
        },
        {"role": "user", "content": "<tool_response>\n2\n</tool_response>"},
    ]


def test_null_members_of_tools_are_not_rendered() -> None:
    assert without_nulls({"a": None, "b": [{"enum": None, "type": "string"}]}) == {"b": [{"type": "string"}]}


@pytest.mark.parametrize("system", ["", "  \n", None])
def test_a_blank_system_prompt_makes_no_message(system: str | None) -> None:
    prompt = prompt_of({"system_prompt": system, "user_prompt": "Hi", "ground_truth": "1", "Level": 2})
    assert prompt.messages == [{"role": "user", "content": "Hi"}]
    assert prompt.metadata == {"Level": 2} and prompt.scripted is None


def test_a_tokenizer_is_loaded_without_a_tensor_library(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TEMPLATES["tools"])
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import services.rollout.service\n"
        "assert 'transformers' not in sys.modules, 'transformers is loaded at start'\n"
        "from services.rollout.models import renderer_of\n"
        f"renderer = renderer_of(Path({str(tmp_path)!r}))\n"
        "assert renderer.opening([{'role': 'user', 'content': 'hi'}], [])\n"
        "assert 'torch' not in sys.modules, 'torch is loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
