"""The built-in agent loop: chat, run the tools that were called, and again, until the model answers without a call.

A row's `scripted_first_turn` stands as the first answer: it is context, never trained on, and its calls are run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

from libs.common.contracts.rollouts import ToolText
from libs.common.errors import Invalid
from services.rollout.chat import ChatAnswer, tool_call_members
from services.rollout.live import LiveRollout
from services.rollout.messages import VERBATIM, Message
from services.rollout.tool_calls import ParsedAnswer, parse_answer

LoopEnd = Literal["stop", "max_turns"]
Chat = Callable[[Sequence[Message]], Awaitable[ChatAnswer]]


class CallableTools(Protocol):
    """What the loop needs of a tool session."""

    async def call(self, name: str, arguments: str) -> ToolText:
        """Run a tool."""
        ...


async def run_agent_loop(
    rollout: LiveRollout,
    chat: Chat,
    tools: CallableTools | None,
    *,
    scripted: str | None,
    max_turns: int,
) -> LoopEnd:
    """Carry on `rollout.messages` to the end.

    Raises:
        Invalid: the first prompt leaves no room for an answer.
        OsmosisError: what the chat or the tool session raised.
    """
    if scripted is not None and not await _scripted_turn(rollout, tools, scripted):
        return "stop"
    for _ in range(max_turns):
        answer = await chat(rollout.messages)
        if answer.answer is None:
            if not rollout.conversation.answers:
                raise Invalid(rollout.no_room or "the first prompt leaves no room for an answer")
            return "stop"
        rollout.messages.append(answer.message)
        if not await _run_calls(rollout, tools, answer.message, answer.faults):
            return "stop"
    return "max_turns"


async def _scripted_turn(rollout: LiveRollout, tools: CallableTools | None, text: str) -> bool:
    """Whether the scripted answer called a tool."""
    parsed: ParsedAnswer = parse_answer(text)
    message: Message = {"role": "assistant", "content": parsed.content, VERBATIM: text}
    if parsed.calls:
        message["tool_calls"] = tool_call_members(parsed)
    rollout.messages.append(message)
    return await _run_calls(rollout, tools, message, parsed.faults)


async def _run_calls(
    rollout: LiveRollout, tools: CallableTools | None, message: Message, faults: Sequence[str]
) -> bool:
    """Run an answer's calls in their order and append what they say; whether there was anything to say."""
    calls: list[dict[str, Any]] = message.get("tool_calls", [])
    for call in calls:
        function = call["function"]
        rollout.tool_calls += 1
        said = await _call(tools, function["name"], function["arguments"])
        rollout.messages.append({"role": "tool", "content": said, "tool_call_id": call["id"]})
    for fault in faults:
        rollout.messages.append({"role": "tool", "content": f"Error: {fault}", "tool_call_id": "unknown"})
    return bool(calls or faults)


async def _call(tools: CallableTools | None, name: str, arguments: str) -> str:
    if tools is None:
        return f"Error: Unknown tool: {name!r}; this run has no tools"
    return (await tools.call(name, arguments)).text
