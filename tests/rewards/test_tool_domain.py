"""What the model is told of a tool, and what a call says to it: the tables as cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rewards.domain.tool_result import (
    LONGEST_TEXT,
    BadArguments,
    read_arguments,
    result_text,
    with_numbers,
)
from services.rewards.domain.tool_schema import tool_schema

PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an integer": ({"type": "integer"}, {"type": "number"}),
    "a float": ({"type": "number"}, {"type": "number"}),
    "a boolean": ({"type": "boolean"}, {"type": "boolean"}),
    "a text": ({"type": "string", "title": "X"}, {"type": "string"}),
    "a list": ({"type": "array", "items": {"type": "integer"}}, {"type": "array"}),
    "a dict": ({"type": "object", "additionalProperties": True}, {"type": "object"}),
    "a model": ({"$ref": "#/$defs/Point"}, {"type": "object"}),
    "an enum": ({"$ref": "#/$defs/Colour"}, {"type": "string", "enum": ["red", "blue"]}),
    "a literal": ({"enum": ["a", "b"], "type": "string"}, {"type": "string", "enum": ["a", "b"]}),
    "a literal of one": ({"const": "a"}, {"type": "string", "enum": ["a"]}),
    "a literal of numbers": ({"enum": [1, 2], "type": "integer"}, {"type": "number"}),
    "an optional": ({"anyOf": [{"type": "null"}, {"type": "integer"}], "default": None}, {"type": "number"}),
    "a union": ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "string"}),
    "types in a list": ({"type": ["null", "integer"]}, {"type": "number"}),
    "described": (
        {"type": "integer", "description": "how many"},
        {"type": "number", "description": "how many"},
    ),
    "an optional model, described": (
        {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "description": "where"},
        {"type": "object", "description": "where"},
    ),
    "anything": ({}, {"type": "string"}),
    "a circle": ({"$ref": "#/$defs/Circle"}, {"type": "string"}),
}
DEFINITIONS = {
    "Point": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "Colour": {"type": "string", "enum": ["red", "blue"]},
    "Circle": {"$ref": "#/$defs/Circle"},
}


@pytest.mark.parametrize(("given_schema", "shown"), PARAMETERS.values(), ids=PARAMETERS)
def test_a_parameter_as_the_model_is_told(given_schema: dict[str, Any], shown: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"p": given_schema}, "required": ["p"], "$defs": DEFINITIONS}
    function = tool_schema("t", "Does it.", schema).function
    assert function["parameters"] == {"type": "object", "properties": {"p": shown}, "required": ["p"]}


def test_a_description_is_cleaned_and_never_missing() -> None:
    assert tool_schema("t", "First.\n\n        Args:\n            a: b\n    ", {}).function[
        "description"
    ] == ("First.\n\nArgs:\n    a: b")
    assert tool_schema("t", None, {}).function["description"] == "Tool: t"


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["type", "anyOf", "$ref", "enum", "properties", "$defs"]), x), max_leaves=8)))  # fmt: skip
def test_whatever_schema_a_server_sends_there_is_one_for_the_model(schema: dict[str, Any]) -> None:
    parameters = tool_schema("t", None, {"properties": {"p": schema}, **schema}).function["parameters"]
    assert parameters["type"] == "object"


RESULTS: dict[str, tuple[Any, list[str], str]] = {
    "a lone result": ({"result": 5}, ["5"], "5"),
    "a float": ({"result": 5.0}, ["5.0"], "5.0"),
    "a text": ({"result": "as is\n"}, ["x"], "as is\n"),
    "nothing": ({"result": None}, [], ""),
    "a truth": ({"result": True}, [], "true"),
    "a list": ({"result": [1, "é"]}, [], '[1, "é"]'),
    "an object": ({"x": 1}, [], '{"x": 1}'),
    "an object with a result": ({"result": 1, "x": 2}, [], '{"result": 1, "x": 2}'),
    "text parts": (None, ["a", "b"], "a\nb"),
    "no content": (None, [], ""),
}


@pytest.mark.parametrize(("structured", "texts", "said"), RESULTS.values(), ids=RESULTS)
def test_what_a_result_says(structured: Any, texts: list[str], said: str) -> None:
    assert result_text(structured, texts) == said


def test_a_long_result_is_cut_with_a_note() -> None:
    said = result_text(None, ["x" * 100_000])
    assert said.startswith("x" * LONGEST_TEXT)
    assert "[cut: the result has 100000 characters" in said


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "3", "null", '{"a": ', "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        read_arguments(text)


def test_arguments_are_an_object_or_its_text() -> None:
    assert read_arguments('{"a": 1}') == read_arguments({"a": 1}) == {"a": 1}


def test_numeric_text_becomes_a_number_only_where_one_is_wanted() -> None:
    schema = {"properties": {"i": {"type": "integer"}, "f": {"type": "number"}, "s": {"type": "string"}}}
    given_arguments = {"i": "3", "f": "0.5", "s": "3", "more": "3"}
    assert with_numbers(given_arguments, schema) == {"i": 3, "f": 0.5, "s": "3", "more": "3"}
    assert with_numbers({"i": "3.5", "f": "nan"}, schema) == {"i": "3.5", "f": "nan"}
