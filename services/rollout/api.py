"""`POST /v1/chat/completions`: the door for agents that run elsewhere (specification: remote rollout protocol, 3.1).

Guaranteed here: a token opens its own rollout alone; an answer is status 200, or an error that says whether asking
again helps: 503 does, everything in the 400s does not. No chat is held for 300 s.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from libs.common.clock import Clock
from libs.common.errors import Forbidden, Invalid, NotFound, OsmosisError, Unauthenticated, Unavailable
from libs.common.identifiers import RolloutId
from libs.common.service import field_errors
from libs.common.tokens import bearer, token_matches
from services.rollout.chat import ChatAnswer, ChatParams, Chats
from services.rollout.live import LiveRollout, LiveRollouts
from services.rollout.repeats import ClientGone

LARGEST_BODY = 32 * 1024 * 1024
"""Bytes of a request: whole conversations come each time."""
CLIENT_GONE = 499
"""Nobody reads this answer; the number is the customary one in logs."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ChatBody(BaseModel):
    """A chat as agents send it; null members count as missing, unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rollout_id: str = Field(min_length=1, max_length=256)
    messages: list[dict[str, Any]] = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    stop: Annotated[list[str] | None, BeforeValidator(_as_list)] = None
    model: str | None = None
    logprobs: bool | None = None

    def params(self) -> ChatParams:
        """What is asked for."""
        stop = None if self.stop is None else tuple(self.stop)
        return ChatParams(self.temperature, self.top_p, self.max_tokens, stop)

    def digest(self) -> str:
        """What tells a repeat from another request: the messages as they came, and the parameters."""
        said = [self.messages, self.temperature, self.top_p, self.max_tokens, self.stop]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class Usage(BaseModel):
    """Tokens of one chat."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Choice(BaseModel):
    """The one choice."""

    index: Literal[0] = 0
    message: dict[str, Any]
    finish_reason: Literal["stop", "length", "tool_calls"]


class Completion(BaseModel):
    """An answer in OpenAI's form, with its tokens."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str = "policy"
    choices: list[Choice]
    usage: Usage
    token_ids: list[int]
    logprobs: list[float]
    prompt_token_ids: list[int]


def completion_of(answer: ChatAnswer, created: int) -> Completion:
    """The answer as it travels."""
    prompt, sampled = len(answer.prompt_ids), len(answer.token_ids)
    return Completion(
        id=answer.id,
        created=created,
        choices=[Choice(message=answer.message, finish_reason=answer.finish_reason)],
        usage=Usage(prompt_tokens=prompt, completion_tokens=sampled, total_tokens=prompt + sampled),
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        prompt_token_ids=answer.prompt_ids,
    )


class ChatApi:
    """Chats over HTTP."""

    def __init__(self, live: LiveRollouts, chats: Chats, clock: Clock, *, timeout_s: float) -> None:
        self._live = live
        self._chats = chats
        self._clock = clock
        self._timeout_s = timeout_s

    def app(self) -> FastAPI:
        """The routes."""
        app = FastAPI(title="Osmosis rollout broker", docs_url=None, redoc_url=None, openapi_url=None)

        @app.post("/v1/chat/completions")
        async def chat_completions(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
            try:
                return await self._answer(request)
            except OsmosisError as error:
                return _problem(error)
            except ClientGone:
                return Response(status_code=CLIENT_GONE)

        return app

    async def _answer(self, request: Request) -> Response:
        body = await _body(request)
        rollout = self._opened(request, RolloutId(body.rollout_id))
        gone = asyncio.create_task(_gone(request), name="client-gone")
        try:
            answer = await rollout.repeats.answer(body.digest(), lambda: self._chat(rollout, body), gone)
        except asyncio.CancelledError:
            if not rollout.ended:
                raise
            # The rollout ended while its chat was under way.
            raise NotFound("the rollout has ended") from None
        finally:
            gone.cancel()
        assert isinstance(answer, ChatAnswer)
        created = int(self._clock.now().timestamp())
        return Response(
            completion_of(answer, created).model_dump_json(), media_type="application/json", status_code=200
        )

    async def _chat(self, rollout: LiveRollout, body: ChatBody) -> ChatAnswer:
        return await self._chats.answer(rollout, body.messages, body.params(), timeout_s=self._timeout_s)

    def _opened(self, request: Request, rollout_id: RolloutId) -> LiveRollout:
        token = bearer(request.headers.get("authorization"))
        if token is None:
            raise Unauthenticated("send the rollout's token as Authorization: Bearer TOKEN")
        rollout = self._live.get(rollout_id)
        if not token_matches(token, rollout.token):
            raise Forbidden("the token does not belong to this rollout")
        return rollout


async def _body(request: Request) -> ChatBody:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > LARGEST_BODY:
            raise Invalid(f"the request is larger than {LARGEST_BODY} bytes; shorten the conversation")
    try:
        return ChatBody.model_validate_json(raw)
    except ValidationError as error:
        raise Invalid("the chat is not valid", fields=field_errors(error)) from None


async def _gone(request: Request) -> None:
    """Returns once the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _problem(error: OsmosisError) -> JSONResponse:
    detail = {"detail": error.message, "fields": [[one.path, one.message] for one in error.fields]}
    headers = {"Retry-After": "1"} if isinstance(error, Unavailable) else None
    return JSONResponse(detail, status_code=error.status, headers=headers)
