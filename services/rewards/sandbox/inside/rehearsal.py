"""Plays one session with a server of our own in the template, so that no fork pays for first uses.

FastMCP and pydantic import and build much at the first handshake and the first call; a fork inherits what is done
before it. The project's own server isn't touched: its lifespan belongs to its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from typing import Any

from .split_streams import standard_streams

PATIENCE_S = 20.0

_LINES: list[dict[str, Any]] = [
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "rehearsal", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "a"}}},
    {"id": 4, "method": "tools/call", "params": {"name": "wait", "arguments": {"number": 1}}},
]


def rehearse(kind: type[Any]) -> None:
    """Run the session; a version of FastMCP that plays it otherwise only makes the first calls slower."""
    before = sys.stdin, sys.stdout
    with contextlib.suppress(BaseException), tempfile.TemporaryFile() as answers:
        asked, ask = os.pipe()
        with os.fdopen(ask, "wb") as lines:
            for line in _LINES:
                lines.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        sys.stdin, sys.stdout = standard_streams(asked, os.dup(answers.fileno()))
        asyncio.run(_play(_server(kind)))
    sys.stdin, sys.stdout = before


async def _play(server: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await server.run_stdio_async(show_banner=False)


def _server(kind: type[Any]) -> Any:
    server = kind("rehearsal")

    def echo(text: str) -> str:
        return text

    async def wait(number: float) -> dict[str, float]:
        return {"number": number}

    server.tool(echo)
    server.tool(wait)
    return server
