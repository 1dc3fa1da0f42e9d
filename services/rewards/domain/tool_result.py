"""Arguments as the model wrote them, and what a tool's result says to the model. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

LONGEST_TEXT = 32 * 1024
"""Characters of a result that the model gets."""


class BadArguments(ValueError):
    """The model's arguments are not a JSON object."""


def read_arguments(arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as an object. Raises BadArguments."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"the arguments are not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise BadArguments("the arguments must be a JSON object")
    return cast("dict[str, Any]", parsed)


def with_numbers(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with numeric text made numbers where the tool's schema wants numbers (`"3"` becomes 3).

    Newer servers do so themselves; older ones refuse the text.
    """
    properties: object = schema.get("properties")
    known = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
    return {name: _as_number(value, known.get(name)) for name, value in arguments.items()}


def _as_number(value: object, wanted: object) -> object:
    kind = cast("dict[str, object]", wanted).get("type") if isinstance(wanted, dict) else None
    if not isinstance(value, str) or kind not in ("integer", "number"):
        return value
    try:
        number = int(value) if kind == "integer" else float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value


def result_text(structured: object, texts: Sequence[str]) -> str:
    """Structured content if there is any, a lone `result` unwrapped; else the text parts.

    Text stays as it is, numbers are as printed, None is empty, anything else is JSON.
    """
    if structured is None:
        return shortened("\n".join(texts))
    value: object = structured
    if isinstance(structured, dict):
        members = cast("dict[str, object]", structured)
        value = members["result"] if members.keys() == {"result"} else members
    return shortened(_said(value))


def _said(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def shortened(text: str) -> str:
    """The text, or its beginning with a note to the model."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[cut: the result has {len(text)} characters, the first {LONGEST_TEXT} are shown]"


def error_text(reason: str) -> str:
    """What the model reads when a call did not work."""
    return shortened(f"Error: {reason}")
