"""Chats over HTTP: tokens, limits, repeats, parallel chats, and what an agent is told when it cannot be answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from libs.common.contracts.recipes import SamplingConfig
from libs.common.contracts.rollouts import BatchRequested
from libs.common.contracts.trajectories import Trajectory
from libs.common.tokens import derive_token
from tests.rollout.worlds import DEADLINE_S, World, rollout_world, row, until

SLOW = 7
"""`max_tokens` of chats that the engine answers when the test says so."""
ASK = [{"role": "user", "content": "How heavy is part 7?"}]


class Remote:
    """An agent that chats in a rollout whose own loop hangs in the engine until the test lets it go."""

    def __init__(self, world: World, batch: BatchRequested, http: httpx.AsyncClient) -> None:
        self.world = world
        self.batch = batch
        self.http = http
        self.rollout_id = str(world.engine.requests[0]["rollout_id"])
        self.token = derive_token(world.platform.settings.deployment_secret, "rollout", self.rollout_id, 1)
        self.slow = asyncio.Event()
        world.engine.hold = self._hold

    async def _hold(self, asked: dict[str, Any]) -> None:
        if asked is self.world.engine.requests[0]:
            await self.world.engine.open.wait()
        elif asked["max_tokens"] == SLOW:
            await self.slow.wait()

    async def chat(self, messages: list[dict[str, Any]] = ASK, token: str | None = None, **body: Any) -> Any:
        """One call, as agents make it."""
        asked = {"model": "default", "messages": messages, "rollout_id": self.rollout_id, **body}
        return await self.http.post(
            f"{self.world.address}/v1/chat/completions",
            json=asked,
            headers={"Authorization": f"Bearer {token or self.token}"},
        )

    async def gives_up(self) -> None:
        """A slow chat whose client does not wait for it."""
        patient = self.http
        async with httpx.AsyncClient(timeout=0.3) as self.http:
            with pytest.raises(httpx.ReadTimeout):
                await self.chat(max_tokens=SLOW)
        self.http = patient

    async def end(self) -> Trajectory:
        """Let the rollout's own loop finish."""
        self.world.engine.open.set()
        [group] = await self.world.groups_of(self.batch)
        return group.trajectories[0]


@pytest.fixture
async def remote(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Remote]:
    """`param`: seconds that a chat may take."""
    monkeypatch.setenv("OSMOSIS_ROLLOUT_CHAT_TIMEOUT_S", getattr(request, "param", "240"))
    async with rollout_world(tmp_path) as world, httpx.AsyncClient(timeout=DEADLINE_S) as http:
        world.engine.open.clear()
        recipe = await world.recipe(
            [row(0)], rollout={"max_turns": 6, "max_tokens_total": 4000, "max_replacements": 0}
        )
        sampling = SamplingConfig(temperature=0.9, max_response_length=32)
        batch = world.batch(recipe, [0], n_samples=1, sampling=sampling)
        await world.state(batch)
        await until(lambda: world.engine.requests, "the rollout's own chat hangs")
        yield Remote(world, batch, http)
        world.engine.open.set()


async def test_a_chat_is_answered_as_openai_does_with_its_tokens(remote: Remote) -> None:
    answer = await remote.chat()
    assert answer.status_code == 200
    body = answer.json()
    assert body["object"] == "chat.completion" and body["id"]
    [choice] = body["choices"]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"].isdigit()
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": len(body["prompt_token_ids"]),
        "completion_tokens": len(body["token_ids"]),
        "total_tokens": len(body["prompt_token_ids"]) + len(body["token_ids"]),
    }
    assert len(body["logprobs"]) == len(body["token_ids"])


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("wrong", 403), ("of another rollout", 403), ("ümläut", 403)]
)
async def test_a_token_opens_its_own_rollout_alone(remote: Remote, token: str, status: int) -> None:
    body = {"messages": ASK, "rollout_id": remote.rollout_id}
    secret = remote.world.platform.settings.deployment_secret
    if token == "of another rollout":
        token = derive_token(secret, "rollout", "rollout_other", 1)
    headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
    answer = await remote.http.post(f"{remote.world.address}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == status
    assert remote.token not in answer.text


async def test_an_unknown_rollout_is_404_and_so_is_one_that_has_ended(remote: Remote) -> None:
    assert (await remote.chat(rollout_id="rollout_unknown")).status_code == 404
    await remote.end()
    assert (await remote.chat()).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": "hello"},
        {"temperature": 9},
        {"top_p": 0},
        {"max_tokens": 0},
        {"rollout_id": ""},
    ],
)
async def test_a_chat_that_is_not_valid_says_where(remote: Remote, body: dict[str, Any]) -> None:
    asked = {"messages": ASK, "rollout_id": remote.rollout_id} | body
    answer = await remote.http.post(
        f"{remote.world.address}/v1/chat/completions",
        json=asked,
        headers={"Authorization": f"Bearer {remote.token}"},
    )
    assert answer.status_code == 422
    assert next(iter(body)) in answer.json()["fields"][0][0]


async def test_the_request_wins_within_the_runs_limits(remote: Remote) -> None:
    await remote.chat(temperature=0.3, top_p=0.5, max_tokens=9999, stop="END", logprobs=None)
    asked = remote.world.engine.requests[-1]
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.3, 0.5, 32)
    assert asked["stop"] == ["END"]
    await remote.chat(max_tokens=4, temperature=None)
    asked = remote.world.engine.requests[-1]
    assert (asked["temperature"], asked["max_tokens"]) == (0.9, 4)
    said = await remote.end()
    assert {span.temperature for branch in said.branches for span in branch.sampled} == {0.3, 0.9}


async def test_beyond_max_turns_the_answer_is_empty_with_reason_length(remote: Remote) -> None:
    for number in range(5):
        assert (await remote.chat([{"role": "user", "content": str(number)}])).status_code == 200
    answer = await remote.chat()
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["token_ids"] == []
    assert (await remote.end()).turns == 6


async def test_parallel_equal_chats_are_two_answers_in_two_branches(remote: Remote) -> None:
    first, second = await asyncio.gather(remote.chat(), remote.chat())
    assert first.json()["id"] != second.json()["id"]
    said = await remote.end()
    assert len(said.branches) == 3
    assert said.turns == 3


async def test_a_history_goes_on_behind_the_answer_that_the_agent_sends_back(remote: Remote) -> None:
    first = (await remote.chat()).json()
    history = [*ASK, first["choices"][0]["message"], {"role": "user", "content": "Sure?"}]
    second = (await remote.chat(history)).json()
    known = [*first["prompt_token_ids"], *first["token_ids"]]
    assert second["prompt_token_ids"][: len(known)] == known
    rewritten = [{"role": "user", "content": "In short: part 7."}, *history[1:]]
    await remote.chat(rewritten)
    said = await remote.end()
    assert sorted(len(branch.sampled) for branch in said.branches) == [1, 1, 2]


async def test_a_repeat_after_the_client_gave_up_gets_the_same_answer(remote: Remote) -> None:
    await remote.gives_up()
    again = asyncio.create_task(remote.chat(max_tokens=SLOW))
    await remote.chat()
    remote.slow.set()
    body = (await again).json()
    asked = [one for one in remote.world.engine.requests if one["max_tokens"] == SLOW]
    assert len(asked) == 1
    said = await remote.end()
    assert said.turns == 3
    assert [*body["prompt_token_ids"], *body["token_ids"]] in [branch.token_ids for branch in said.branches]


async def test_a_repeat_that_comes_once_the_answer_is_there_gets_it_too(remote: Remote) -> None:
    await remote.gives_up()
    remote.slow.set()
    before = len(remote.world.engine.requests)
    assert (await remote.chat(max_tokens=SLOW)).status_code == 200
    assert len(remote.world.engine.requests) == before
    assert (await remote.end()).turns == 2


async def test_an_answer_that_nobody_came_back_for_is_not_trained_on(remote: Remote) -> None:
    await remote.gives_up()
    remote.slow.set()
    await until(lambda: remote.world.engine.answers.get(remote.rollout_id), "the answer was sampled")
    assert (await remote.chat()).status_code == 200
    said = await remote.end()
    assert len(said.branches) == 2


async def test_asking_again_after_an_answer_means_another_one(remote: Remote) -> None:
    first, second = await remote.chat(), await remote.chat()
    assert first.json()["id"] != second.json()["id"]
    assert len((await remote.end()).branches) == 3


async def test_a_chat_under_way_ends_with_its_rollout(remote: Remote) -> None:
    slow = asyncio.create_task(remote.chat(max_tokens=SLOW))
    await until(lambda: len(remote.world.engine.requests) == 2, "the chat is under way")
    said = await remote.end()
    assert (await slow).status_code == 404
    assert len(said.branches) == 1


@pytest.mark.parametrize("remote", ["0.5"], indirect=True)
async def test_an_overloaded_engine_is_a_503_before_the_client_gives_up(remote: Remote) -> None:
    remote.world.engine.statuses += [503] * 100
    answer = await remote.chat()
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    remote.world.engine.statuses.clear()
    assert (await remote.chat()).status_code == 200
