"""What is trained on is what was sampled: over random conversations and three chat templates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.contracts.recipes import SamplingConfig
from libs.common.identifiers import RolloutId, RunId
from services.rollout.chat import ChatAnswer, ChatParams, Chats
from services.rollout.engine import EngineAddress, SampleAnswer, SampleRequest
from services.rollout.live import Budget, Limits, LiveRollout
from services.rollout.messages import Message
from services.rollout.rendering import Renderer
from tests.rollout.chat_templates import TEMPLATES, renderer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": None,
            "parameters": {"type": "object", "properties": {"key": {"type": "string", "enum": None}}},
        },
    }
]

TEXT = st.text(alphabet=st.sampled_from('ab é\n{}"<>0👍'), max_size=12)
SPOKEN = st.one_of(
    TEXT,
    st.builds("<think>\n{}\n</think>\n\n{}".format, TEXT, TEXT),
    st.builds('{}<tool_call>\n{{"name": "lookup", "arguments": {{"key":"1"}}}}\n</tool_call>'.format, TEXT),
    st.just("<tool_call>{broken"),
    st.just("cut <think> in the middle"),
)


@dataclass(frozen=True)
class Turn:
    """What an agent does next: where it goes on, what it says, and what the policy answers."""

    how: Literal["go on", "fork", "rewrite", "afresh", "same again"]
    where: int
    said: str
    spoken: str
    ends: bool
    raw: tuple[int, ...]


TURNS = st.lists(
    st.builds(
        Turn,
        how=st.sampled_from(["go on", "go on", "go on", "fork", "rewrite", "afresh", "same again"]),
        where=st.integers(0, 5),
        said=TEXT,
        spoken=SPOKEN,
        ends=st.booleans(),
        raw=st.lists(st.integers(0, 258), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@dataclass
class ScriptedEngine:
    """Answers what it is told, and keeps what it was asked."""

    answers: list[list[int]] = field(default_factory=list[list[int]])
    asked: list[SampleRequest] = field(default_factory=list[SampleRequest])

    async def sample(
        self, engine: EngineAddress, request: SampleRequest, *, timeout_s: float
    ) -> SampleAnswer:
        token_ids = self.answers[len(self.asked)]
        number = len(self.asked)
        self.asked.append(request)
        logprobs = [-(number + i / 1000) for i in range(len(token_ids))]
        ended = bool(token_ids) and token_ids[-1] in request.stop_token_ids
        reason: Literal["stop", "length"] = "stop" if ended else "length"
        return SampleAnswer(token_ids=token_ids, logprobs=logprobs, finish_reason=reason, version=number)


def new_rollout(template: Renderer, tools: Sequence[dict[str, Any]] = TOOLS) -> LiveRollout:
    return LiveRollout(
        id=RolloutId("rollout_1"),
        run_id=RunId("run_1"),
        epoch=1,
        phase="train",
        token="",
        engine=EngineAddress("http://engine", ""),
        renderer=template,
        sampling=SamplingConfig(),
        budget=Budget(Limits(max_turns=1000, max_tokens_total=1 << 30, context_length=1 << 30)),
        seed_of_turn=lambda turn: turn,
        tools=list(tools),
    )


def history_of(turn: Turn, histories: list[list[Message]]) -> list[Message]:
    """The messages that the agent sends: from those that it had before, answers included."""
    asked: Message = {"role": "user", "content": turn.said}
    if not histories or turn.how == "afresh":
        return [{"role": "system", "content": turn.said}, asked]
    if turn.how == "go on":
        return [*histories[-1], *follow_ups(histories[-1], asked)]
    earlier = histories[turn.where % len(histories)]
    if turn.how == "same again":
        return earlier[:-1]
    if turn.how == "fork":
        return [*earlier, {"role": "user", "content": f"fork {turn.said}"}]
    return [{"role": "user", "content": f"in short: {turn.said}"}, *earlier[1:], asked]


def follow_ups(history: list[Message], asked: Message) -> list[Message]:
    calls = history[-1].get("tool_calls") or []
    said = [{"role": "tool", "content": "42", "tool_call_id": call["id"]} for call in calls]
    return said or [asked]


def as_agents_send_it(message: Message) -> Message:
    """Through JSON, with nulls where SDKs put them."""
    sent = json.loads(json.dumps(message))
    if sent["content"] == "":
        sent["content"] = None
    return sent


async def converse(
    template: Renderer, turns: list[Turn]
) -> tuple[LiveRollout, ScriptedEngine, list[ChatAnswer]]:
    rollout, engine = new_rollout(template), ScriptedEngine()
    chats = Chats(engine)  # pyright: ignore[reportArgumentType]
    histories: list[list[Message]] = []
    answers: list[ChatAnswer] = []
    for turn in turns:
        messages = history_of(turn, histories)
        stop = min(template.stop_ids)
        spoken = [one for one in template._tokenizer.encode(turn.spoken) if one != stop]
        spoken += [one for one in turn.raw if one != stop] or [0]
        engine.answers.append([*spoken, stop] if turn.ends else spoken)
        answer = await chats.answer(rollout, messages, ChatParams(), timeout_s=1)
        histories.append([*messages, as_agents_send_it(answer.message)])
        answers.append(answer)
    return rollout, engine, answers


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS)
def test_trained_tokens_are_the_sampled_ones_each_exactly_once(name: str, turns: list[Turn]) -> None:
    rollout, engine, _ = asyncio.run(converse(renderer(name), turns))
    branches = rollout.conversation.branches()
    trained = [
        (span.version, branch.token_ids[span.start : span.stop], span.logprobs)
        for branch in branches
        for span in branch.sampled
    ]
    sampled = [
        (number, token_ids, [-(number + i / 1000) for i in range(len(token_ids))])
        for number, token_ids in enumerate(engine.answers)
    ]
    assert sorted(trained) == sorted(sampled)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS)
def test_each_answer_stands_behind_the_very_prompt_that_it_was_sampled_from(
    name: str, turns: list[Turn]
) -> None:
    rollout, engine, _ = asyncio.run(converse(renderer(name), turns))
    seen = {
        span.version: branch.token_ids[: span.stop]
        for branch in rollout.conversation.branches()
        for span in branch.sampled
    }
    for number, (request, token_ids) in enumerate(zip(engine.asked, engine.answers, strict=True)):
        assert seen[number] == [*request.prompt_ids, *token_ids]


@settings(max_examples=60, deadline=None)
@given(said=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_a_conversation_that_goes_on_reads_as_the_template_renders_it_whole(
    said: list[tuple[str, str]],
) -> None:
    plain = renderer("plain")
    turns = [Turn("go on", 0, asked, spoken or "-", True, ()) for asked, spoken in said]

    async def run() -> None:
        rollout, engine = new_rollout(plain, tools=[]), ScriptedEngine()
        chats = Chats(engine)  # pyright: ignore[reportArgumentType]
        messages: list[Message] = []
        for turn in turns:
            messages = [*messages, {"role": "user", "content": turn.said}]
            engine.answers.append([*plain._tokenizer.encode(turn.spoken), min(plain.stop_ids)])
            answer = await chats.answer(rollout, messages, ChatParams(), timeout_s=1)
            assert engine.asked[-1].prompt_ids == plain.opening(messages, [])
            messages = [*messages, as_agents_send_it(answer.message)]
        assert len(rollout.conversation.branches()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_reasoning_and_tool_calls_stay_in_one_branch(name: str) -> None:
    call = (
        '<think>\nwhich?\n</think>\n\nLooking.\n<tool_call>\n{"name":"lookup","arguments":{}}\n</tool_call>'
    )
    turns = [
        Turn("go on", 0, "first", call, True, ()),
        Turn("go on", 0, "unused", "<think>\nso\n</think>\n\nIt is 42.", False, ()),
        Turn("go on", 0, "second", "<think>\nagain\n</think>\n\nYes.", True, ()),
    ]
    rollout, _, answers = asyncio.run(converse(renderer(name), turns))
    assert len(rollout.conversation.branches()) == 1
    assert answers[0].finish_reason == "tool_calls"
    text = renderer(name)._tokenizer._inner.decode(rollout.conversation.branches()[0].token_ids)
    assert text.count("which?") == 1 and text.count("<|im_end|>\n<|im_end|>") == 0
    assert text.count("<|im_start|>assistant") == 3


def test_an_answer_that_was_cut_is_closed_as_context() -> None:
    turns = [Turn("go on", 0, "a", "half", False, ()), Turn("go on", 0, "b", "whole", True, ())]
    rollout, engine, _ = asyncio.run(converse(renderer("plain"), turns))
    half = engine.answers[0]
    behind = engine.asked[1].prompt_ids[len(engine.asked[0].prompt_ids) + len(half) :]
    assert behind[0] == min(renderer("plain").stop_ids)
    assert [span.stop - span.start for span in rollout.conversation.branches()[0].sampled] == [
        len(half),
        len(engine.answers[1]),
    ]


def test_equal_answers_of_parallel_chats_are_told_apart_by_their_mark() -> None:
    turns = [Turn("go on", 0, "a", "same", True, ()), Turn("same again", 0, "", "same", True, ())]
    rollout, _, answers = asyncio.run(converse(renderer("plain"), turns))
    first, second = rollout.conversation.answers
    history: list[Message] = [{"role": "system", "content": "a"}, {"role": "user", "content": "a"}]
    for answer, mine in ((answers[0], first), (answers[1], second)):
        known = rollout.conversation.match([*history, answer.message])
        assert known is not None and known.answer is mine
