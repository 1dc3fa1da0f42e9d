"""Tool calls are found in an answer's text; whatever else stands there stays."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from services.rollout.tool_calls import ParsedAnswer, ToolCall, parse_answer

NAMES = st.text(alphabet="abcdefgh_", min_size=1, max_size=8)
VALUES = st.one_of(st.integers(-9, 9), st.text(max_size=8), st.none(), st.lists(st.booleans(), max_size=2))
ARGUMENTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=3)
PROSE = st.text(alphabet="ab .\n{}[]\"'é", max_size=20)


@given(prose=PROSE, calls=st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4), listed=st.booleans())
def test_every_call_is_read_in_its_order(
    prose: str, calls: list[tuple[str, dict[str, object]]], listed: bool
) -> None:
    objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
    blocks = [objects] if listed else objects
    text = prose + "".join(f"<tool_call>\n{json.dumps(block)}\n</tool_call>" for block in blocks)
    parsed = parse_answer(text)
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == calls
    assert parsed.content == prose.strip() and parsed.faults == ()


PIECES = st.sampled_from(["<tool_call>", "</tool_call>", "<think>", "</think>", "{", "}", '"', "a", " "])


@given(text=st.lists(PIECES, max_size=30).map("".join))
def test_any_text_is_read_and_nothing_is_lost_without_a_call(text: str) -> None:
    parsed = parse_answer(text)
    assert parsed.calls or parsed.content == text


def test_arguments_as_text_stay_as_the_model_wrote_them() -> None:
    parsed = parse_answer('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>')
    assert parsed.calls == (ToolCall("add", '{"a": 1}'),)


def test_a_call_without_arguments_has_none() -> None:
    assert parse_answer('<tool_call>{"name": "now"}</tool_call>').calls == (ToolCall("now", "{}"),)


def test_a_malformed_block_stays_beside_a_good_one() -> None:
    parsed = parse_answer('<tool_call>{"name": "a"}</tool_call> and <tool_call>{oops</tool_call>')
    assert [call.name for call in parsed.calls] == ["a"]
    assert parsed.content == "and <tool_call>{oops</tool_call>"
    assert len(parsed.faults) == 1


def test_a_call_that_was_cut_is_a_fault() -> None:
    parsed = parse_answer('Wait <tool_call>{"name": "a"}')
    assert parsed.calls == () and parsed.faults == ("the tool call does not end with </tool_call>",)
    assert parsed.content == 'Wait <tool_call>{"name": "a"}'


def test_a_call_in_the_reasoning_is_only_thought_of() -> None:
    thought = '<think>maybe <tool_call>{"name": "a"}</tool_call></think>'
    assert parse_answer(f"{thought}No.") == ParsedAnswer(f"{thought}No.")
    assert parse_answer(thought.removesuffix("</think>")).calls == ()
    parsed = parse_answer(f'{thought}<tool_call>{{"name": "b"}}</tool_call>')
    assert [call.name for call in parsed.calls] == ["b"]
