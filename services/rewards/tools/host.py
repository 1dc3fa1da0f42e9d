"""Tools of all projects: templates by commit, schemas kept, sessions opened.

Guaranteed here: one template a project, started once however many ask at a time; the least recently used template
without sessions is ended when there are too many; after `aclose` no process is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from libs.common.contracts.rollouts import ToolSchema
from libs.common.errors import Unavailable
from services.rewards.domain.tool_schema import tool_schema
from services.rewards.sandbox import Launcher, Limits, SandboxProject
from services.rewards.tools.session import ToolSession
from services.rewards.tools.template import SessionSocket, ToolTemplate

IDLE_S = 300.0
"""Seconds without a session after which a template is ended."""

SESSION_LIMITS = Limits(cpu_s=120, processes=1024)
"""Limits of a template: processor time is that of one session, processes (and threads) are those of all of them."""


@dataclass
class _Entry:
    template: ToolTemplate | None = None
    schemas: list[ToolSchema] | None = None
    sessions: int = 0
    used_at: float = 0.0
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)


class HeldSession(ToolSession):
    """A session that counts as a use of its project's template until it is closed."""

    def __init__(self, host: ToolHost, project: SandboxProject, timeout_s: float) -> None:
        super().__init__(lambda: host.fork(project), timeout_s)
        self._host = host
        self._project = project
        self._closed = False

    async def aclose(self) -> None:
        """End the session's processes. Idempotent."""
        await super().aclose()
        if not self._closed:
            self._closed = True
            self._host.released(self._project)


class ToolHost:
    """Lists and calls the tools of any project, each rollout in a fork of its own."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        limits: Limits = SESSION_LIMITS,
        most_templates: int = 8,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._limits = limits
        self._most = most_templates
        self._monotonic = monotonic
        self._entries: dict[SandboxProject, _Entry] = {}

    async def list_tools(self, project: SandboxProject) -> list[ToolSchema]:
        """The project's tools as the model is told of them, in the server's order.

        Raises Invalid with the author's error when the server cannot be loaded, Unavailable when it does not answer.
        """
        entry = self._entry(project)
        async with entry.listing:
            if entry.schemas is None:
                session = await self.open(project)
                try:
                    listed = await session.list_tools()
                finally:
                    await session.aclose()
                entry.schemas = [tool_schema(t.name, t.description, t.input_schema) for t in listed]
        return entry.schemas

    async def warnings(self, project: SandboxProject) -> list[str]:
        """What its author should know. Raises as `list_tools`."""
        return (await self._template(project)).warnings

    async def open(self, project: SandboxProject, timeout_s: float = 30.0) -> ToolSession:
        """A session for one rollout; `timeout_s` for each call. Its server is forked at the first call.

        Raises Invalid when the project's server cannot be loaded.
        """
        entry = self._entry(project)
        entry.sessions += 1
        try:
            await self._template(project)
        except BaseException:
            self.released(project)
            raise
        return HeldSession(self, project, timeout_s)

    async def fork(self, project: SandboxProject) -> SessionSocket:
        """A fork of the project's server, of a new template where the old one is lost."""
        try:
            return await (await self._template(project)).open_session()
        except Unavailable:
            return await (await self._template(project)).open_session()

    def released(self, project: SandboxProject) -> None:
        """A session of the project was closed."""
        entry = self._entries.get(project)
        if entry is not None:
            entry.sessions -= 1
            entry.used_at = self._monotonic()

    def checkouts(self) -> set[Path]:
        """Folders that templates hold."""
        return {project.checkout for project in self._entries}

    def _entry(self, project: SandboxProject) -> _Entry:
        return self._entries.setdefault(project, _Entry())

    async def _template(self, project: SandboxProject) -> ToolTemplate:
        entry = self._entry(project)
        async with entry.starting:
            if entry.template is None or not entry.template.alive:
                await self._make_room()
                entry.template = await ToolTemplate.start(self._launcher, project, self._limits)
            return entry.template

    async def _make_room(self) -> None:
        warm = [key for key, entry in self._entries.items() if entry.template is not None]
        idle = sorted((key for key in warm if not self._entries[key].sessions), key=self._used_at)
        for key in idle[: max(0, len(warm) + 1 - self._most)]:
            await self._end(key)

    def _used_at(self, project: SandboxProject) -> float:
        return self._entries[project].used_at

    async def evict_idle(self) -> None:
        """End the templates that had no session for `IDLE_S` seconds."""
        before = self._monotonic() - IDLE_S
        for key, entry in list(self._entries.items()):
            if not entry.sessions and entry.used_at <= before:
                await self._end(key)

    async def _end(self, project: SandboxProject) -> None:
        entry = self._entries.pop(project)
        if entry.template is not None:
            await entry.template.aclose()

    async def aclose(self) -> None:
        """End every template and with it every session."""
        for project in list(self._entries):
            await self._end(project)
