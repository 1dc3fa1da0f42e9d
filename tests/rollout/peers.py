"""The broker's peers, as small as can be: a policy engine over real HTTP, and a rewards service on the bus."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response

from libs.common.bus import QueueSpec
from libs.common.contracts.envelope import Envelope
from libs.common.contracts.requests import Done, ReplyMessage, RequestMessage
from libs.common.contracts.rollouts import (
    GroupSampled,
    GroupScored,
    SampleScore,
    ToolSchema,
    ToolSessionOpened,
    ToolText,
)
from libs.common.contracts.trajectories import Group, RewardComponent, Trajectory
from libs.common.errors import NotFound, OsmosisError
from libs.common.http_server import bind, port_of, serving
from libs.common.identifiers import RolloutId
from libs.common.parcels import unpack
from libs.common.platform import Platform
from services.rollout.rendering import Renderer

Policy = Callable[[dict[str, Any], str], str]
"""`(request, text of the prompt) -> text of the answer`."""


@dataclass
class Engine:
    """Samples what its policy says, one token a byte, ended by the stop token."""

    renderer: Renderer
    policy: Policy
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tokens: list[str] = field(default_factory=list[str])
    arrived: list[float] = field(default_factory=list[float])
    answers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    statuses: list[int] = field(default_factory=list[int])
    """Statuses of the next answers; 200 once it is empty."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, calls hang, as `hold` says."""
    hold: Callable[[dict[str, Any]], Awaitable[object]] | None = None
    url: str = ""

    def __post_init__(self) -> None:
        self.open.set()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/v1/sample")
        async def sample(request: Request) -> Any:
            self.arrived.append(time.perf_counter())
            asked = await request.json()
            self.requests.append(asked)
            self.tokens.append(request.headers["authorization"])
            await (self.open.wait() if self.hold is None else self.hold(asked))
            status = self.statuses.pop(0) if self.statuses else 200
            if status != 200:
                return Response("not now", status_code=status)
            return self._sample(asked)

        return app

    def _sample(self, asked: dict[str, Any]) -> dict[str, Any]:
        tokenizer = self.renderer._tokenizer
        text = self.policy(asked, tokenizer._inner.decode(asked["prompt_ids"]))
        token_ids = [*tokenizer.encode(text), *asked["stop_token_ids"][:1]]
        reason = "stop" if len(token_ids) <= asked["max_tokens"] else "length"
        token_ids = token_ids[: asked["max_tokens"]]
        self.answers.setdefault(asked["rollout_id"], []).extend(token_ids)
        return {
            "token_ids": token_ids,
            "logprobs": [-0.5] * len(token_ids),
            "finish_reason": reason,
            "version": 3,
        }


@asynccontextmanager
async def engine_at_work(renderer: Renderer, policy: Policy, port: int = 0) -> AsyncGenerator[Engine]:
    """The engine answers inside the block."""
    engine = Engine(renderer, policy)
    listener = bind("127.0.0.1", port)
    async with serving(engine.app(), listener):
        engine.url = f"http://127.0.0.1:{port_of(listener)}"
        yield engine


ADD = ToolSchema(
    function={
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    }
)


@dataclass
class Rewards:
    """Scores every trajectory by `judge`, answers tool calls, and remembers what it was asked."""

    platform: Platform
    judge: Callable[[Trajectory], float | None] = lambda trajectory: 1.0
    sampled: list[GroupSampled] = field(default_factory=list[GroupSampled])
    opened: list[str] = field(default_factory=list[str])
    closed: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    refuses: list[OsmosisError] = field(default_factory=list[OsmosisError])
    """What the next sessions are refused with."""
    holds_back: bool = False

    async def start(self) -> None:
        async def hear(envelope: Envelope, _delivery: int) -> None:
            fact = envelope.fact()
            assert isinstance(fact, GroupSampled)
            self.sampled.append(fact)
            if not self.holds_back:
                await self.score(fact)

        async def bury(envelope: Envelope, _deliveries: int, error: str) -> None:
            raise AssertionError(f"{envelope.type} died: {error}")

        queue = QueueSpec("rewards.work.group.sampled", ("group.sampled",), ordered=False)
        await self.platform.bus.consume(queue, hear, bury)
        await self.platform.bus.serve("rewards", self._answer)
        await self.platform.bus.serve("rewards.replica-7", self._answer)

    async def score(self, fact: GroupSampled, envelope_id: str | None = None) -> None:
        group = await unpack(self.platform.blobs, fact.group, Group)
        scored = GroupScored(
            workspace_id=fact.workspace_id,
            group_id=fact.group_id,
            batch_id=fact.batch_id,
            run_id=fact.run_id,
            epoch=fact.epoch,
            scores=[self._score(trajectory) for trajectory in group.trajectories],
        )
        envelope = Envelope.wrap(
            scored,
            id=envelope_id or f"evt_{fact.group_id}_{len(self.sampled)}",
            source="rewards",
            time=self.platform.clock.now(),
            traceparent=None,
        )
        await self.platform.bus.publish(envelope)

    def _score(self, trajectory: Trajectory) -> SampleScore:
        if trajectory.status == "failed":
            return SampleScore(rollout_id=RolloutId(trajectory.rollout_id), reward=None, components=[])
        value = self.judge(trajectory)
        error = None if value is not None else "ValueError: no number in the answer"
        component = RewardComponent(name="compute_reward.reward", value=value, error=error)
        return SampleScore(rollout_id=RolloutId(trajectory.rollout_id), reward=value, components=[component])

    async def _answer(self, message: RequestMessage) -> ReplyMessage:
        try:
            return ReplyMessage.of(message, self._tool(message))
        except OsmosisError as error:
            return ReplyMessage.of(message, error)

    def _tool(self, message: RequestMessage) -> ToolSessionOpened | ToolText | Done:
        assert message.caller.kind == "service"
        data = message.data
        if message.name == "rewards.open_tool_session":
            if self.refuses:
                raise self.refuses.pop(0)
            self.opened.append(data["rollout_id"])
            return ToolSessionOpened(
                session_id=f"tools_{data['rollout_id']}", address="rewards.replica-7", tools=[ADD]
            )
        if message.name == "rewards.close_tool_session":
            self.closed.append(data["session_id"])
            return Done()
        if data["session_id"] in self.closed:
            raise NotFound("the session is gone")
        self.calls.append((data["session_id"], data["name"], data["arguments"]))
        if data["name"] != "add":
            return ToolText(text=f"Error: Unknown tool: {data['name']!r}", failed=True)
        numbers = json.loads(data["arguments"])
        return ToolText(text=str(numbers["a"] + numbers["b"]))
