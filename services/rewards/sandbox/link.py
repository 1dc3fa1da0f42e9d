"""The service's end of a sandbox's socket: messages of JSON, and descriptors that go in with one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any, cast

from services.rewards.sandbox.inside.wire import HEADER, LONGEST, pack


class LinkClosed(Exception):
    """The sandbox is gone, or said something that is not a message: it can't be talked to any more."""


class Link:
    """Reads and writes whole messages. One reader and one writer at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._buffer = bytearray()

    async def send(self, message: dict[str, Any]) -> None:
        """Raises LinkClosed."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection, pack(message))
        except OSError as error:
            raise LinkClosed(str(error)) from error

    async def send_descriptor(self, message: dict[str, Any], descriptor: int) -> None:
        """Send a message whose first byte carries `descriptor`. Raises LinkClosed."""
        data = pack(message)
        try:
            sent = socket.send_fds(self._connection, [data], [descriptor])
            await asyncio.get_running_loop().sock_sendall(self._connection, data[sent:])
        except OSError as error:
            raise LinkClosed(str(error)) from error

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises LinkClosed at the end, and for anything that is not a JSON object."""
        length: int = HEADER.unpack(await self._exactly(HEADER.size))[0]
        if length > LONGEST:
            raise LinkClosed(f"a message of {length} bytes is over the limit of {LONGEST}")
        body = await self._exactly(length)
        try:
            message: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LinkClosed("not JSON") from error
        if not isinstance(message, dict):
            raise LinkClosed("not a JSON object")
        return cast("dict[str, Any]", message)

    async def _exactly(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        while len(self._buffer) < count:
            try:
                part = await loop.sock_recv(self._connection, 1 << 16)
            except OSError as error:
                raise LinkClosed(str(error)) from error
            if not part:
                raise LinkClosed("the sandbox closed its end")
            self._buffer += part
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def close(self) -> None:
        """Close our end: a template that is still alive ends."""
        with contextlib.suppress(OSError):
            self._connection.close()
