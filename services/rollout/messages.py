"""Messages in OpenAI's form: one canonical form to compare them by, and the form that a chat template renders.

Guaranteed here: two messages that say the same to a model compare equal, whatever members, nulls, spaces in arguments
or lists of parts an agent's library made of them on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

Message = dict[str, Any]
"""As it travels: role, content (text, parts or null), tool_calls, tool_call_id, and what agents add."""

ANSWER_MARK = "osmosis_answer"
"""Member of an answer that names it: agents send it back untouched, so that equal texts stay apart."""
VERBATIM = "osmosis_text"
"""Member of an assistant message that was not sampled: its text exactly as it stands, tool calls included."""


def content_text(content: object) -> str:
    """Content as text: null is empty, the text parts of a list are joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (
        cast("dict[str, object]", part) for part in cast("list[object]", content) if isinstance(part, dict)
    )
    return "".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


def tool_calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message, those that are objects."""
    calls: object = message.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [cast("dict[str, Any]", call) for call in cast("list[object]", calls) if isinstance(call, dict)]


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    function: object = call.get("function")
    return cast("dict[str, Any]", function) if isinstance(function, dict) else {}


def arguments_object(arguments: object) -> object:
    """Arguments as an object where they are JSON text of one, else as they are."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else arguments


def canonical(message: Mapping[str, Any]) -> bytes:
    """What a message says, as bytes to compare."""
    calls = [
        (str(_function(call).get("name")), arguments_object(_function(call).get("arguments")))
        for call in tool_calls_of(message)
    ]
    said = (
        str(message.get("role")),
        content_text(message.get("content")),
        calls,
        message.get("tool_call_id"),
    )
    return json.dumps(said, sort_keys=True, default=str).encode()


def prefix_digests(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """SHA-256 chain: element i tells the first i + 1 messages apart from all others."""
    digests: list[bytes] = []
    last = b""
    for message in messages:
        last = hashlib.sha256(last + canonical(message)).digest()
        digests.append(last)
    return digests


@dataclass(frozen=True)
class Habits:
    """What a chat template knows: tool calls in answers, and messages of tools."""

    renders_calls: bool = True
    renders_results: bool = True


def for_template(messages: Iterable[Mapping[str, Any]], habits: Habits) -> list[Message]:
    """Messages as chat templates expect them: text content, arguments as objects, no nulls, no members of ours.

    What a template does not know becomes text in the Hermes form: calls in the answer, results from the user.
    """
    return [_for_template(message, habits) for message in messages]


def _for_template(message: Mapping[str, Any], habits: Habits) -> Message:
    plain: Message = {"role": message.get("role"), "content": content_text(message.get("content"))}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if isinstance(message.get(name), str):
            plain[name] = message[name]
    if plain["role"] == "tool" and not habits.renders_results:
        return {"role": "user", "content": f"<tool_response>\n{plain['content']}\n</tool_response>"}
    if isinstance(message.get(VERBATIM), str):
        return plain | {"content": message[VERBATIM]}
    calls = [
        {"name": _function(call).get("name"), "arguments": arguments_object(_function(call).get("arguments"))}
        for call in tool_calls_of(message)
    ]
    if calls and habits.renders_calls:
        plain["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    elif calls:
        plain["content"] = "\n".join([*filter(None, [plain["content"]]), *map(_hermes, calls)])
    return plain


def _hermes(call: Mapping[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def without_nulls(value: object) -> object:
    """A tool's schema without its null members: templates would render them as such."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: without_nulls(member) for name, member in members.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in cast("list[object]", value)]
    return value


def public(message: Mapping[str, Any]) -> Message:
    """A message without the members that are ours alone."""
    return {name: value for name, value in message.items() if name not in (ANSWER_MARK, VERBATIM)}
