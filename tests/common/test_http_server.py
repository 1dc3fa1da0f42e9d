"""Listening sockets: taken ports are named, and answers are sent at once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from libs.common.http_server import bind, port_of


async def test_what_is_written_is_sent_at_once() -> None:
    """Nagle's algorithm is off on accepted connections: with it, a body waits for the acknowledgement of its head."""
    no_delay: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        no_delay.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = bind("127.0.0.1", 0)
    async with await asyncio.start_server(accepted, sock=listener):
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        async with asyncio.timeout(5):
            assert await no_delay
        writer.close()


def test_a_taken_port_is_named() -> None:
    listener = bind("127.0.0.1", 0)
    with listener, pytest.raises(OSError, match=f"127.0.0.1:{port_of(listener)}"):
        bind("127.0.0.1", port_of(listener))
