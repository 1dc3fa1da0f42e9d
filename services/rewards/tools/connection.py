"""One MCP connection to a forked tool server, over a socket that belongs to it alone.

The client is the `mcp` package's; this file only carries its messages, a line of JSON each, as over stdio.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession
from mcp.shared.message import SessionMessage
from mcp_types import PaginatedRequestParams, Tool, jsonrpc_message_adapter
from pydantic import ValidationError

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message of a tool server; more ends the connection."""

_MOST_PAGES = 100


@asynccontextmanager
async def connected(ours: socket.socket) -> AsyncGenerator[ClientSession]:
    """A client whose handshake is done.

    When the server goes away, calls under way raise `mcp.MCPError` or `anyio.ClosedResourceError`.
    """
    reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](8)
    try:
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_read, reader, to_client)
            pumps.start_soon(_write, writer, from_client)
            async with ClientSession(from_server, to_server) as client:
                await client.initialize()
                yield client
            pumps.cancel_scope.cancel()
    finally:
        writer.close()
        for stream in (to_client, from_server, to_server, from_client):
            stream.close()


async def list_all(client: ClientSession) -> list[Tool]:
    """Every tool of the server, page by page, at most `_MOST_PAGES` of them."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


async def _read(
    reader: asyncio.StreamReader, to_client: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    with suppress(OSError, ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with to_client:
            while line := await reader.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as error:
                    await to_client.send(error)
                else:
                    await to_client.send(SessionMessage(message))


async def _write(
    writer: asyncio.StreamWriter, from_client: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    with suppress(OSError, anyio.ClosedResourceError, anyio.EndOfStream):
        async for outgoing in from_client:
            line = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
            writer.write(line.encode() + b"\n")
            await writer.drain()
