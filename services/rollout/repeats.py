"""Chats of agents that call over HTTP, and their repeats.

A repeat looks exactly like its first request. Guaranteed here: a chat whose client went away before it was answered is
given to the next identical request, which waits for it or gets its answer at once; one whose client is still there, or
was answered, is never shared: an agent that asks twice means two answers. What nobody came back for is not trained on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol


class Given(Protocol):
    """An answer that can be withdrawn."""

    def set_received(self, received: bool) -> None:
        """Whether somebody got it."""
        ...


class ClientGone(Exception):
    """The client went away before its chat was answered."""


class Repeats:
    """The chats of one rollout that came over HTTP."""

    def __init__(self) -> None:
        self._left: dict[str, deque[asyncio.Task[Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def answer(
        self,
        key: str,
        chat: Callable[[], Coroutine[Any, Any, Given]],
        gone: asyncio.Task[Any],
    ) -> Given:
        """The answer to the request that `key` tells apart, asked for again only where nobody was left without it.

        `gone` is done once the client has gone away.

        Raises:
            ClientGone: it did, before there was an answer.
            OsmosisError: what the chat raised; a repeat then asks again.
        """
        task = self._take(key) or self._start(chat)
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._leave(key, task)
            raise
        if gone.done() or not task.done():
            self._leave(key, task)
            raise ClientGone
        given = task.result()
        given.set_received(True)
        return given

    def _take(self, key: str) -> asyncio.Task[Any] | None:
        left = self._left.get(key, deque())
        while left:
            task = left.popleft()
            if not _failed(task):
                return task
        return None

    def _start(self, chat: Callable[[], Coroutine[Any, Any, Given]]) -> asyncio.Task[Any]:
        task = asyncio.create_task(chat(), name="chat")
        self._tasks.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is None:
            # Whoever waits for it says so in the same turn of the loop; until then nobody has it.
            task.result().set_received(False)

    def _leave(self, key: str, task: asyncio.Task[Any]) -> None:
        if not _failed(task):
            self._left.setdefault(key, deque()).append(task)

    async def aclose(self) -> None:
        """Cancel the chats under way."""
        under_way = list(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
