"""The template of a reward pool: imports modules once, runs each call in a fork of itself, one after the other.

Guaranteed here: calls are answered in order, each once, under the number that the service gave; when a call left
something behind that can't be undone, the template says so and is used no more.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from . import calling, forks
from .modules import ImportFailed, Modules
from .scratch import Scratch
from .wire import Channel


class RewardTemplate:
    """Serves batches of calls until the service closes its end."""

    def __init__(self, channel: Channel, start: dict[str, Any], end_all: Callable[[], bool]) -> None:
        self._channel = channel
        self._limits: dict[str, Any] = start["limits"]
        self._root: str = start["project"]
        self._folders: tuple[str, ...] = tuple(start["scratch"])
        self._modules = Modules(self._root)
        self._end_all = end_all

    def serve(self) -> None:
        """Answer batches; returns when the service has gone."""
        while (message := self._channel.receive()) is not None:
            calls: list[dict[str, Any]] = message["calls"]
            self._import(calls)
            scratch = Scratch(self._folders)
            for call in calls:
                answer = self._answer(call)
                retire = not scratch.restore()
                self._channel.send({"call": call["call"], **answer, "retire": retire})
                if retire:
                    return

    def _import(self, calls: list[dict[str, Any]]) -> None:
        wanted = {call["file"] for call in calls}
        for file in sorted(file for file in wanted if not self._modules.knows(file)):
            self._channel.send({"importing": file})
            try:
                self._modules.function(file, "")
            except ImportFailed:
                continue
            finally:
                # What is imported stays: without this, the collector would touch, and so copy, its pages in each fork.
                gc.collect()
                gc.freeze()
                self._channel.send({"imported": file})

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._modules.function(call["file"], call["function"])
        except ImportFailed as error:
            return {"import_error": str(error)}
        work = lambda: calling.report(function, call["inputs"], self._root)  # noqa: E731
        ended = forks.run(work, self._limits, self._channel.fileno(), self._end_all)
        return {
            "answer": ended.answer.decode("utf-8", "replace"),
            "output": ended.output.decode("utf-8", "replace"),
            "printed": ended.printed,
            "timed_out": ended.timed_out,
            "status": ended.status,
            "seconds": ended.seconds,
        }
