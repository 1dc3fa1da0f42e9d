"""One rollout's session with its project's tools.

Guaranteed here: calls run one after the other; whatever happens to the server, a call ends with a text for the model;
after a crash or a time-out the next call meets a fresh fork.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from mcp import ClientSession, MCPError
from mcp_types import CONNECTION_CLOSED, CallToolResult, TextContent, Tool

from libs.common.contracts.rollouts import ToolText
from libs.common.errors import OsmosisError, Unavailable
from services.rewards.domain.tool_result import (
    BadArguments,
    error_text,
    read_arguments,
    result_text,
    with_numbers,
)
from services.rewards.tools.connection import connected, list_all
from services.rewards.tools.template import SessionSocket

OPEN_S = 30.0
"""Seconds for the handshake with a forked server."""

Open = Callable[[], Awaitable[SessionSocket]]


class ToolSession:
    """An isolated fork of the project's tool server, started at the first call and after each loss."""

    def __init__(self, open_socket: Open, timeout_s: float) -> None:
        self._open = open_socket
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._live: _Live | None = None

    async def call(
        self, name: str, arguments: str | Mapping[str, Any], timeout_s: float | None = None
    ) -> ToolText:
        """Call a tool. Never raises for what the tool, its arguments or its process do: that is an `Error: …` text."""
        started = time.monotonic()
        async with self._turn:
            try:
                text, failed = await self._call(name, read_arguments(arguments), timeout_s or self._timeout_s)
            except BadArguments as error:
                text, failed = error_text(str(error)), True
        return ToolText(text=text, failed=failed, duration_ms=1000 * (time.monotonic() - started))

    async def _call(self, name: str, arguments: dict[str, Any], timeout_s: float) -> tuple[str, bool]:
        try:
            live = await self._connected()
            async with asyncio.timeout(timeout_s):
                return _said(await live.client.call_tool(name, live.fitting(name, arguments)))
        except TimeoutError:
            await self._lose()
            return error_text(f"{name} took longer than {timeout_s:g} seconds and was stopped"), True
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                return error_text(error.message), True
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass
        except OsmosisError as error:
            return error_text(error.message), True
        except RuntimeError as error:
            # The client's own checks: a result that does not fit the tool's declared schema.
            return error_text(str(error)), True
        await self._lose()
        return error_text(f"the tool server ended during {name}; it is started again for the next call"), True

    async def list_tools(self) -> list[Tool]:
        """The server's tools.

        Raises Invalid when the project's server cannot be loaded, Unavailable when it does not answer.
        """
        async with self._turn:
            try:
                return (await self._connected()).tools
            except (MCPError, OSError) as error:
                raise Unavailable(f"the tool server does not answer: {error}") from error

    async def _connected(self) -> _Live:
        """The live connection, of a new fork where there is none."""
        if self._live is not None and self._live.ended:
            await self._lose()
        if self._live is None:
            self._live = await _Live.start(await self._open())
        return self._live

    async def _lose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.aclose()

    async def aclose(self) -> None:
        """End the session's processes. Idempotent."""
        async with self._turn:
            await self._lose()


class _Live:
    """A connection and the task that owns it, since a client must be entered and left in one task."""

    def __init__(self, place: SessionSocket) -> None:
        self._place = place
        self._leave = asyncio.Event()
        self._client: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self.tools: list[Tool] = []
        self._task = asyncio.create_task(self._own(), name="tool-session")

    @classmethod
    async def start(cls, place: SessionSocket) -> _Live:
        """Raises ConnectionError when the server does not come up in `OPEN_S` seconds."""
        live = cls(place)
        try:
            async with asyncio.timeout(OPEN_S):
                live.tools = await list_all(await asyncio.shield(live._client))
        except BaseException as error:
            await live.aclose()
            if isinstance(error, TimeoutError):
                raise ConnectionError("the tool server did not answer the handshake") from error
            raise
        return live

    @property
    def client(self) -> ClientSession:
        return self._client.result()

    def fitting(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the tool's schema wants its numbers."""
        schemas = [tool.input_schema for tool in self.tools if tool.name == name]
        return with_numbers(arguments, schemas[0]) if schemas else arguments

    @property
    def ended(self) -> bool:
        return self._task.done() or self._place.ended()

    async def _own(self) -> None:
        try:
            async with connected(self._place.ours) as client:
                self._client.set_result(client)
                await self._leave.wait()
        except BaseException as error:
            if not self._client.done():
                self._client.set_exception(ConnectionError(f"the tool server ended: {error}"))
                self._client.exception()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def aclose(self) -> None:
        self._leave.set()
        await self._place.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _said(result: CallToolResult) -> tuple[str, bool]:
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    if result.is_error:
        return error_text("\n".join(texts) or "the tool failed without a message"), True
    return result_text(result.structured_content, texts), False
