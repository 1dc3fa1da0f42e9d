"""One chat of a rollout: messages in, an answer out, every token kept. The agent loop and HTTP use the same.

Guaranteed here: what the engine sampled is recorded as it was sampled, together with the settings that were used; a
chat that has no room left is answered with finish reason `length` and samples nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from libs.common.contracts.recipes import SamplingConfig
from services.rollout.conversation import Answer, FinishReason, Sampled
from services.rollout.engine import EngineClient, SampleAnswer, SampleRequest
from services.rollout.live import LiveRollout
from services.rollout.messages import ANSWER_MARK, Message
from services.rollout.tool_calls import ParsedAnswer, parse_answer

LARGE_CONVERSATION = 64
"""Messages from which on rendering leaves the event loop: it may take tens of milliseconds."""


@dataclass(frozen=True)
class ChatParams:
    """What a request asks for; None: as the run says."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None

    def within(self, sampling: SamplingConfig) -> SamplingConfig:
        """The settings to sample with: the request wins, within the run's limits."""
        asked = {"temperature": self.temperature, "top_p": self.top_p}
        wanted = {name: value for name, value in asked.items() if value is not None}
        most = sampling.max_response_length
        return sampling.model_copy(
            update={
                **wanted,
                "max_response_length": min(self.max_tokens or most, most),
                "stop": list(self.stop) if self.stop is not None else sampling.stop,
            }
        )


@dataclass(frozen=True)
class ChatAnswer:
    """What a chat is answered with. `faults`: malformed tool calls in the text, one sentence each."""

    id: str
    message: Message
    finish_reason: FinishReason
    prompt_ids: list[int]
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    faults: tuple[str, ...] = ()
    answer: Answer | None = None

    def set_received(self, received: bool) -> None:
        """Whether the agent got it: an answer that nobody got is not trained on."""
        if self.answer is not None:
            self.answer.received = received


@dataclass(frozen=True)
class _Prompt:
    """Where a chat stands in the conversation: `ids` = those of the parent's branch + `context_ids`."""

    parent: Answer | None
    context_ids: list[int]
    ids: list[int]


class Chats:
    """Answers chats by one engine client."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine

    async def answer(
        self,
        rollout: LiveRollout,
        messages: Sequence[Mapping[str, Any]],
        params: ChatParams,
        *,
        timeout_s: float,
    ) -> ChatAnswer:
        """Sample an answer to `messages` within `timeout_s` seconds.

        Raises:
            Invalid: the chat template cannot render the messages.
            Unavailable, EngineRefused: as the engine client says.
        """
        turn, rollout.chats = rollout.chats, rollout.chats + 1
        sampling = params.within(rollout.sampling)
        prompt = await _prompt(rollout, messages)
        granted = rollout.budget.grant(
            prompt=len(prompt.ids), context=len(prompt.context_ids), wanted=sampling.max_response_length
        )
        if not granted:
            return _no_room(rollout, prompt)
        request = _sample_request(rollout, prompt, sampling, granted, turn)
        started = perf_counter()
        try:
            sampled = await self._engine.sample(rollout.engine, request, timeout_s=timeout_s)
        except BaseException:
            rollout.budget.undo(context=len(prompt.context_ids), granted=granted)
            raise
        rollout.policy_s += perf_counter() - started
        rollout.budget.settle(granted, len(sampled.token_ids))
        return _record(rollout, messages, prompt, sampling, sampled)


async def _prompt(rollout: LiveRollout, messages: Sequence[Mapping[str, Any]]) -> _Prompt:
    if len(messages) < LARGE_CONVERSATION:
        return _place(rollout, messages)
    return await asyncio.to_thread(_place, rollout, messages)


def _place(rollout: LiveRollout, messages: Sequence[Mapping[str, Any]]) -> _Prompt:
    known = rollout.conversation.match(messages)
    if known is not None:
        answer, before = known.answer, messages[: known.length - 1]
        context_ids = rollout.renderer.continuation(
            before, messages[known.length :], rollout.tools, answer.sampled.token_ids
        )
        if context_ids is not None:
            return _Prompt(answer, context_ids, [*answer.ids(), *context_ids])
    opening = rollout.renderer.opening(messages, rollout.tools)
    return _Prompt(None, opening, opening)


def _no_room(rollout: LiveRollout, prompt: _Prompt) -> ChatAnswer:
    limits = rollout.budget.limits
    rollout.no_room = (
        f"chat {rollout.budget.turns + 1} with a prompt of {len(prompt.ids)} tokens has no room: the rollout may take"
        f" {limits.max_turns} turns and {limits.max_tokens_total} tokens in all, the model's context holds"
        f" {limits.context_length}; shorten the prompt or raise rollout.max_turns or rollout.max_tokens_total"
    )
    message: Message = {"role": "assistant", "content": ""}
    return ChatAnswer(_new_id(), message, "length", prompt.ids)


def _sample_request(
    rollout: LiveRollout, prompt: _Prompt, sampling: SamplingConfig, granted: int, turn: int
) -> SampleRequest:
    return SampleRequest(
        rollout_id=rollout.id,
        prompt_ids=prompt.ids,
        max_tokens=granted,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop=sampling.stop,
        stop_token_ids=sorted(rollout.renderer.stop_ids),
        seed=rollout.seed_of_turn(turn),
    )


def _record(
    rollout: LiveRollout,
    messages: Sequence[Mapping[str, Any]],
    prompt: _Prompt,
    sampling: SamplingConfig,
    sampled: SampleAnswer,
) -> ChatAnswer:
    text = _without_stop(rollout.renderer.answer_text(sampled.token_ids), sampling.stop)
    parsed = parse_answer(text) if rollout.tools else ParsedAnswer(text)
    mark = _new_id()
    message = _message(parsed, mark)
    reason: FinishReason = "tool_calls" if parsed.calls else sampled.finish_reason
    kept = Sampled(sampled.token_ids, sampled.logprobs, sampled.version, sampling.temperature, reason)
    answer = rollout.conversation.record(messages, message, prompt.parent, prompt.context_ids, kept)
    return ChatAnswer(
        mark, message, reason, prompt.ids, sampled.token_ids, sampled.logprobs, parsed.faults, answer
    )


def _message(parsed: ParsedAnswer, mark: str) -> Message:
    message: Message = {"role": "assistant", "content": parsed.content, ANSWER_MARK: mark}
    if parsed.calls:
        message["tool_calls"] = tool_call_members(parsed)
    return message


def tool_call_members(parsed: ParsedAnswer) -> list[dict[str, Any]]:
    """The calls in OpenAI's form, each with an id of its own."""
    return [
        {
            "id": f"call_{secrets.token_hex(8)}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in parsed.calls
    ]


def _without_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop text in it: the agent does not see it, the branch keeps its tokens."""
    ends = [place for one in stop if one and (place := text.find(one)) >= 0]
    return text[: min(ends)] if ends else text


def _new_id() -> str:
    return f"chat_{secrets.token_hex(10)}"
