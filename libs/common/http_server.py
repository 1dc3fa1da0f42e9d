"""Serving an ASGI app as a task of a service: bound before it is announced, stopped with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator

import uvicorn

SHUTDOWN_S = 3


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        OSError: the address is taken; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off: without it an answer's body waits 40 ms behind its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}; free it or set another port"
        ) from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that a socket listens on."""
    return int(listener.getsockname()[1])


class _Server(uvicorn.Server):
    """Signals belong to the process, not to one of its servers."""

    @contextlib.contextmanager
    def capture_signals(self):  # pyright: ignore[reportUnknownParameterType]
        yield


@contextlib.asynccontextmanager
async def serving(app: object, listener: socket.socket) -> AsyncGenerator[None]:
    """The app answers on the listener inside the block."""
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=SHUTDOWN_S,
        ws="none",
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name=f"http:{port_of(listener)}")
    try:
        # uvicorn announces its start by a flag alone.
        while not server.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if task.done():
            await task
            raise RuntimeError("the HTTP server did not start; what its app logged says why")
        yield
    finally:
        server.should_exit = True
        await task
