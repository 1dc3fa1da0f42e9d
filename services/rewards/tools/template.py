"""A project's warm tool template: one sandbox that has loaded the server and forks it a session.

Guaranteed here: each session's socket is made by the service and handed into the sandbox, so who answers on it is
known; a template that is lost is started again for the next session.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from dataclasses import dataclass

from libs.common.errors import Invalid, Unavailable
from services.rewards.sandbox import Launcher, Limits, Sandbox, SandboxProject
from services.rewards.sandbox.link import LinkClosed


@dataclass
class SessionSocket:
    """The service's end of a session, and its number in the template."""

    template: ToolTemplate
    number: int
    ours: socket.socket

    def ended(self) -> bool:
        """Whether the template is gone."""
        return not self.template.alive

    async def close(self) -> None:
        """End the session's processes."""
        await self.template.close_session(self.number)
        self.ours.close()


class ToolTemplate:
    """A sandbox with the role `tools`."""

    def __init__(self, sandbox: Sandbox, warnings: list[str]) -> None:
        self._sandbox = sandbox
        self._numbers = itertools.count(1)
        self._sending = asyncio.Lock()
        self.warnings = warnings

    @classmethod
    async def start(cls, launcher: Launcher, project: SandboxProject, limits: Limits) -> ToolTemplate:
        """Start the sandbox and load the project's server.

        Raises Invalid with the author's error when the server cannot be loaded, Unavailable when the sandbox fails.
        """
        sandbox = await launcher.start(project, limits, "tools")
        try:
            async with asyncio.timeout(limits.import_s):
                answer = await sandbox.link.receive()
        except BaseException as error:
            await sandbox.kill()
            if isinstance(error, TimeoutError):
                raise Invalid(f"mcp/main.py took over {limits.import_s:g} seconds to import") from error
            if isinstance(error, LinkClosed):
                raise Invalid("importing mcp/main.py ended the process") from error
            raise
        if "load_error" in answer:
            await sandbox.kill()
            raise Invalid(f"the tool server cannot be loaded: {answer['load_error']}")
        warnings: object = answer.get("warnings")
        return cls(sandbox, [str(one) for one in warnings] if isinstance(warnings, list) else [])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return not self._sandbox.dead and self._sandbox.process.returncode is None

    async def open_session(self) -> SessionSocket:
        """Fork the server. Raises Unavailable when the template is gone."""
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        try:
            async with self._sending:
                await self._sandbox.link.send_descriptor({"open": number}, theirs.fileno())
        except LinkClosed as error:
            ours.close()
            await self.aclose()
            raise Unavailable("the tool sandbox ended; call again") from error
        finally:
            theirs.close()
        return SessionSocket(self, number, ours)

    async def close_session(self, number: int) -> None:
        """End a session's processes; one that has ended is no error."""
        try:
            async with self._sending:
                await self._sandbox.link.send({"close": number})
        except LinkClosed:
            await self.aclose()

    async def aclose(self) -> None:
        """End the sandbox and all sessions in it."""
        await self._sandbox.kill()
