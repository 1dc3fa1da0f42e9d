"""A tool as the model is told of it: OpenAI's function form, made from the tool's JSON schema. Pure.

The table of workspace repositories: numbers are one kind, arrays and objects come without their inside, an optional
or a union is its first member that is not null, texts may be an enumeration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from libs.common.contracts.rollouts import ToolSchema

_TYPES = {"integer": "number"}
_DEEPEST = 16
"""References that are followed: a schema of a foreign server may go in circles."""


def tool_schema(name: str, description: str | None, schema: Mapping[str, Any]) -> ToolSchema:
    """The schema of one tool. `schema`: the JSON schema of its arguments."""
    properties = _mapping(schema.get("properties"))
    required = schema.get("required")
    return ToolSchema(
        function={
            "name": name,
            "description": inspect.cleandoc(description or "") or f"Tool: {name}",
            "parameters": {
                "type": "object",
                "properties": {key: _property(_mapping(value), schema) for key, value in properties.items()},
                "required": [str(key) for key in _sequence(required)],
            },
        }
    )


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _property(given: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    settled = _settle(given, root)
    described = given.get("description") or settled.get("description")
    shown: dict[str, Any] = {"type": _type(settled)}
    choices = [settled["const"]] if "const" in settled else list(_sequence(settled.get("enum")))
    if choices and all(isinstance(choice, str) for choice in choices):
        shown["enum"] = choices
    return {**shown, "description": described} if isinstance(described, str) else shown


def _settle(given: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Follow references, and take the first member of a union that is not null."""
    for _ in range(_DEEPEST):
        reference = given.get("$ref")
        members = _members(given)
        if isinstance(reference, str):
            given = _mapping(_mapping(root.get("$defs")).get(reference.rpartition("/")[2]))
        elif members:
            given = members[0]
        else:
            return given
    return {}


def _members(given: dict[str, Any]) -> list[dict[str, Any]]:
    for key in ("anyOf", "oneOf", "allOf"):
        found = [_mapping(member) for member in _sequence(given.get(key))]
        if found:
            return [member for member in found if member.get("type") != "null"] or found
    return []


def _type(settled: dict[str, Any]) -> str:
    kind = settled.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[object]", kind) if one != "null"), None)
    if isinstance(kind, str):
        return _TYPES.get(kind, kind)
    choices = [settled["const"]] if "const" in settled else list(_sequence(settled.get("enum")))
    numeric = bool(choices) and all(isinstance(c, int | float) and not isinstance(c, bool) for c in choices)
    return "number" if numeric else "string"
