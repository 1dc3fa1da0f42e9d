"""The policy engine over HTTP: token ids in, token ids and log-probabilities out. No bus, no database on the way.

Guaranteed here: connections are kept and never waited for, so a step's chats reach the engine together; a call that
was lost or refused for overload is made again until its deadline. The same call samples the same answer, so asking
again is safe.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import httpx
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libs.common.errors import Conflict, Unavailable

CONNECT_S = 10.0
KEPT_S = 60.0
"""How long an idle connection is kept, seconds."""
RETRY_S = (0.1, 0.3, 1.0, 2.0, 4.0)
"""Waits between tries, seconds; the last one repeats until the deadline."""
MOST_FAULTS = 3
"""An engine that is away or overloaded is asked again until the deadline; one that fails inside (500), so often."""
_ERROR_CHARACTERS = 300
_FAULT = "it answered 500"

_log = structlog.get_logger(__name__)


class SampleRequest(BaseModel):
    """One answer to sample. `seed`, `top_k` (0: no limit) and `stop_token_ids` come from the run."""

    model_config = ConfigDict(frozen=True)

    rollout_id: str
    prompt_ids: list[int]
    max_tokens: int = Field(ge=1)
    temperature: float
    top_p: float
    top_k: int
    stop: list[str]
    stop_token_ids: list[int]
    seed: int


class SampleAnswer(BaseModel):
    """What was sampled: `logprobs` one a token, nats; `version` of the policy that sampled every token."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]
    version: int = 0


class EngineRefused(Conflict):
    """The engine answered that it will not: asking again would not help."""


@dataclass(frozen=True)
class EngineAddress:
    """Where an attempt's engine answers, and the token that opens it."""

    url: str
    token: str


class Lines:
    """HTTP clients of one connection each, as many as there are calls at once.

    One client for all calls looks at every connection it keeps before each call: 64 chats side by side then cost
    more time than they sample.
    """

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        self._free: list[httpx.AsyncClient] = []

    @contextmanager
    def one(self) -> Generator[httpx.AsyncClient]:
        """A client that nobody else uses inside the block."""
        line = self._free.pop() if self._free else self._new()
        try:
            yield line
        finally:
            self._free.append(line)

    def _new(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_S)
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        return httpx.AsyncClient(verify=self._tls, limits=limits, timeout=timeout, trust_env=False)

    async def aclose(self) -> None:
        """Close those that are not in use."""
        while self._free:
            await self._free.pop().aclose()


class EngineClient:
    """Calls of one broker to the engines of all attempts."""

    def __init__(self, retries_s: Sequence[float] = RETRY_S) -> None:
        self._lines = Lines()
        self._retries_s = tuple(retries_s)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._lines.aclose()

    async def sample(
        self, engine: EngineAddress, request: SampleRequest, *, timeout_s: float
    ) -> SampleAnswer:
        """Sample one answer.

        Raises:
            EngineRefused: the engine does not take the request, or is no longer this attempt's.
            Unavailable: no answer came within `timeout_s` seconds, whatever was tried.
        """
        body = request.model_dump_json().encode()
        last, faults, tries = "it did not answer", 0, 0
        try:
            async with asyncio.timeout(timeout_s):
                while faults < MOST_FAULTS:
                    answer, last = await self._try(engine, body)
                    if answer is not None:
                        return answer
                    faults += last == _FAULT
                    await asyncio.sleep(self._retries_s[min(tries, len(self._retries_s) - 1)])
                    tries += 1
        except TimeoutError:
            raise Unavailable(f"the policy engine gave no answer within {timeout_s:.0f} s: {last}") from None
        raise EngineRefused(f"the policy engine failed {faults} times inside; the attempt's log says why")

    async def _try(self, engine: EngineAddress, body: bytes) -> tuple[SampleAnswer | None, str]:
        """The answer, or why there was none this time; a body that cannot be taken raises EngineRefused."""
        headers = {"Authorization": f"Bearer {engine.token}", "Content-Type": "application/json"}
        try:
            with self._lines.one() as line:
                response = await line.post(f"{engine.url}/v1/sample", content=body, headers=headers)
        except httpx.HTTPError as error:
            _log.info("the policy engine was not reached", engine=engine.url, error=repr(error))
            return None, f"it was not reached ({type(error).__name__})"
        if response.status_code == 500:
            return None, _FAULT
        if response.status_code > 500:
            return None, f"it answered {response.status_code}"
        if response.status_code != 200:
            said = response.text[:_ERROR_CHARACTERS]
            raise EngineRefused(f"the policy engine answered {response.status_code}: {said}")
        try:
            return SampleAnswer.model_validate_json(response.content), ""
        except ValidationError as error:
            raise EngineRefused(
                f"the policy engine's answer cannot be read: {error.error_count()} faults"
            ) from error
