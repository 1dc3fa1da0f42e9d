"""Tool calls in the text of an answer, in the form that Hermes, Qwen and SmolLM models write.

`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, also with a list of such objects inside. What is malformed stays
in the text, with a fault that tells the model what is wrong. Reasoning in `<think>` is not searched. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THINK, _THOUGHT = "<think>", "</think>"


@dataclass(frozen=True)
class ToolCall:
    """A call as the model wrote it; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ParsedAnswer:
    """`content`: the text around the calls. `faults`: one a malformed block, for the model to read."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    faults: tuple[str, ...] = ()


class _Malformed(ValueError):
    """A block that holds no call; the text says why."""


def parse_answer(text: str) -> ParsedAnswer:
    """Split an answer into its text and its tool calls."""
    spoken_from = text.rfind(_THOUGHT) + len(_THOUGHT) if _THOUGHT in text else 0
    if _THINK in text[spoken_from:]:
        return ParsedAnswer(text)
    calls: list[ToolCall] = []
    faults: list[str] = []

    def take(block: re.Match[str]) -> str:
        try:
            calls.extend(_calls_of(block.group(1), closed=block.group(0).endswith("</tool_call>")))
        except _Malformed as fault:
            faults.append(str(fault))
            return block.group(0)
        return ""

    spoken = _BLOCK.sub(take, text[spoken_from:])
    content = text[:spoken_from] + spoken
    return ParsedAnswer(content.strip() if calls else content, tuple(calls), tuple(faults))


def _calls_of(block: str, *, closed: bool) -> list[ToolCall]:
    if not closed:
        raise _Malformed("the tool call does not end with </tool_call>")
    try:
        parsed: object = json.loads(block)
    except (ValueError, RecursionError) as error:
        raise _Malformed(f"the tool call is not valid JSON: {error}") from error
    if not isinstance(parsed, list):
        return [_call(parsed)]
    return [_call(one) for one in cast("list[object]", parsed)]


def _call(parsed: object) -> ToolCall:
    members = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    name, arguments = members.get("name"), members.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise _Malformed('the tool call must be a JSON object with "name" and "arguments"')
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, arguments)
