"""Messages between service and sandbox: four bytes of length, then JSON. Nothing else is ever decoded.

Both sides read this file; it imports nothing of ours, and no message can name code to run.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct(">I")
LONGEST = 64 * 1024 * 1024
"""Bytes of one message: a batch of calls with their conversations."""


def pack(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    return HEADER.pack(len(body)) + body


class Channel:
    """The sandbox's end of its socket: blocking, one message after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def fileno(self) -> int:
        """The descriptor, to poll on and to close in a fork."""
        return self.connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises OSError when the service is gone."""
        self.connection.sendall(pack(message))

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the service has closed its end."""
        head = self._exactly(HEADER.size)
        if head is None:
            return None
        body = self._exactly(HEADER.unpack(head)[0])
        return None if body is None else json.loads(body)

    def receive_with_descriptor(self) -> tuple[dict[str, Any] | None, int | None]:
        """The next message, and the descriptor that its first byte carried, if any."""
        head, descriptors, _, _ = socket.recv_fds(self.connection, HEADER.size, 1)
        descriptor = descriptors[0] if descriptors else None
        if not head:
            return None, descriptor
        rest = self._exactly(HEADER.size - len(head)) if len(head) < HEADER.size else b""
        body = None if rest is None else self._exactly(HEADER.unpack(head + rest)[0])
        return (None if body is None else json.loads(body)), descriptor

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self.connection.recv(min(count - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)
