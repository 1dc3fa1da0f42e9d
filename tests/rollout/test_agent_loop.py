"""The built-in loop: chat, tools, and again; what the model reads and what is trained on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from libs.common.contracts.rollouts import RolloutCompleted
from libs.common.contracts.trajectories import Trajectory
from tests.rollout.worlds import World, rollout_world, row, until

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
TOOLED: dict[str, Any] = {"has_tools": True, "rollout": {"max_turns": 3, "max_replacements": 0}}


def asks_once(asked: dict[str, Any], prompt: str) -> str:
    """A policy that calls the tool until it sees a result."""
    return "It is 5." if "<tool_response>" in prompt else f"Let me add.\n{CALL}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with rollout_world(tmp_path, asks_once) as world:
        yield world


async def one_of(
    world: World, policy: Any = None, rows: list[dict[str, Any]] | None = None, **recipe: Any
) -> Trajectory:
    if policy is not None:
        world.engine.policy = policy
    kept = await world.recipe(rows or [row(0)], **(TOOLED | recipe))
    [group] = await world.sample(world.batch(kept, [0], n_samples=1))
    return group.trajectories[0]


async def test_a_called_tool_answers_and_the_model_goes_on(world: World) -> None:
    said = await one_of(world)
    assert [message["role"] for message in said.messages] == ["user", "assistant", "tool", "assistant"]
    call = said.messages[1]["tool_calls"][0]
    assert said.messages[1]["content"] == "Let me add."
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"]) == {"a": 2, "b": 3}
    assert said.messages[2] == {"role": "tool", "content": "5", "tool_call_id": call["id"]}
    assert (said.turns, said.tool_calls, said.finish_reason) == (2, 1, "stop")
    assert world.facts(RolloutCompleted)[0].tool_calls == 1


async def test_both_turns_are_trained_on_in_one_branch_and_the_tools_text_is_not(world: World) -> None:
    said = await one_of(world)
    [branch] = said.branches
    trained = [token for span in branch.sampled for token in branch.token_ids[span.start : span.stop]]
    assert trained == world.engine.answers[said.rollout_id]
    assert [span.finish_reason for span in branch.sampled] == ["tool_calls", "stop"]


async def test_the_tools_stand_in_the_prompt_and_the_session_is_closed(world: World) -> None:
    said = await one_of(world)
    tokenizer = world.engine.renderer._tokenizer
    first = tokenizer._inner.decode(world.engine.requests[0]["prompt_ids"])
    assert '"name": "add"' in first
    assert world.rewards.opened == [said.rollout_id]
    await until(lambda: world.rewards.closed == [f"tools_{said.rollout_id}"], "the session is closed")


async def test_calls_of_one_answer_are_run_in_their_order(world: World) -> None:
    both = '<tool_call>[{"name": "add", "arguments": {"a": 1, "b": 1}}, {"name": "sub", "arguments": {}}]</tool_call>'
    said = await one_of(world, lambda asked, prompt: "Done." if "<tool_response>" in prompt else both)
    assert [call[1] for call in world.rewards.calls] == ["add", "sub"]
    assert [message["content"] for message in said.messages[2:4]] == ["2", "Error: Unknown tool: 'sub'"]


async def test_a_malformed_call_stays_text_and_the_model_reads_what_is_wrong(world: World) -> None:
    said = await one_of(
        world,
        lambda asked, prompt: "Sorry." if "<tool_response>" in prompt else "<tool_call>{add}</tool_call>",
    )
    assert said.messages[1] == {"role": "assistant", "content": "<tool_call>{add}</tool_call>"}
    assert said.messages[2]["content"].startswith("Error: the tool call is not valid JSON")
    assert said.messages[3]["content"] == "Sorry."
    assert said.tool_calls == 0


async def test_a_model_that_always_calls_ends_at_max_turns(world: World) -> None:
    said = await one_of(world, lambda asked, prompt: CALL)
    assert (said.turns, said.tool_calls, said.finish_reason) == (3, 3, "max_turns")
    assert said.status == "completed"


async def test_a_run_without_tools_takes_a_call_for_text(world: World) -> None:
    said = await one_of(world, lambda asked, prompt: CALL, has_tools=False)
    assert said.messages[-1] == {"role": "assistant", "content": CALL}
    assert said.turns == 1 and world.rewards.opened == []


async def test_a_scripted_first_turn_is_context_and_its_call_is_run(world: World) -> None:
    scripted = 'I will add.\n<tool_call>[{"name": "add", "arguments": {"a": 5, "b": 2}}]</tool_call>'
    said = await one_of(world, rows=[row(0, scripted_first_turn=scripted)])
    assert [message["role"] for message in said.messages] == ["user", "assistant", "tool", "assistant"]
    assert said.messages[1]["content"] == "I will add."
    assert said.messages[2]["content"] == "7"
    assert (said.turns, said.tool_calls) == (1, 1)
    [branch] = said.branches
    [span] = branch.sampled
    assert branch.token_ids[span.start : span.stop] == world.engine.answers[said.rollout_id]
    prompt = world.engine.renderer._tokenizer._inner.decode(branch.token_ids[: span.start])
    assert f"<|im_start|>assistant\n{scripted}<|im_end|>" in prompt


async def test_tokens_of_a_whole_rollout_are_limited(world: World) -> None:
    limits = {"max_turns": 50, "max_tokens_total": 900, "max_replacements": 0}
    said = await one_of(world, lambda asked, prompt: CALL, rollout=limits)
    assert said.status == "completed"
    assert len(said.branches[0].token_ids) <= 900
    assert said.turns < 50
