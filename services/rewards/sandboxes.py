"""Everything of a replica that runs user code, started and ended together.

Guaranteed here: no user code runs before the self-test has said that the walls stand (or the operator allowed those
that don't by name); when the service ends, so does every sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import structlog

from libs.common.contracts.recipes import CodeSnapshot
from libs.common.platform import Platform
from services.rewards.checkouts import Checkouts
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher, SandboxProject, require_walls
from services.rewards.settings import SandboxSettings
from services.rewards.tool_sessions import ToolSessions
from services.rewards.tools import ToolHost

TIDY_S = 30.0

_log = structlog.get_logger(__name__)


class Sandboxes:
    """Pools, tools and checkouts of one replica."""

    def __init__(self, platform: Platform, settings: SandboxSettings) -> None:
        """Raises Unavailable when a sandbox is asked for and cannot be had."""
        self._launcher = Launcher(platform.settings.sandbox, tuple(settings.packages))
        self._allowed = frozenset(settings.allow_missing)
        self._checked = asyncio.Event()
        folder = platform.settings.data_dir.absolute() / "rewards" / "checkouts"
        self._checkouts = Checkouts(platform.blobs, folder, lambda: platform.clock.now().timestamp())
        self.pools = SandboxPools(self._launcher, workers=settings.workers, most_pools=settings.warm_projects)
        self.tools = ToolHost(self._launcher, most_templates=settings.warm_projects)
        self.sessions = ToolSessions(time.monotonic)

    async def project(self, code: CodeSnapshot) -> SandboxProject:
        """The commit as sandboxes know it, once the walls are known to stand.

        Raises Invalid when the commit's archive cannot be used.
        """
        await self._checked.wait()
        return SandboxProject(await self._checkouts.get(code), code.commit)

    async def run(self) -> None:
        """Check the walls, then tidy up for as long as the service runs. Raises Unavailable when a wall is missing."""
        try:
            await self._check()
            while True:
                await asyncio.sleep(TIDY_S)
                await self._tidy()
        finally:
            await asyncio.shield(self._aclose())

    async def _check(self) -> None:
        if self._launcher.walls == "none":
            _log.warning("user code runs WITHOUT WALLS: OSMOSIS_SANDBOX=none")
        else:
            report = await require_walls(self._launcher, self._allowed)
            _log.info("the sandbox's walls were tried", standing=sorted(report.walls), missing=report.missing)
        self._checked.set()

    async def _tidy(self) -> None:
        await self.sessions.close_idle()
        await self.pools.evict_idle()
        await self.tools.evict_idle()
        await self._checkouts.prune({*self.pools.checkouts(), *self.tools.checkouts()})

    async def _aclose(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._launcher.close)
            stack.push_async_callback(self.pools.aclose)
            stack.push_async_callback(self.tools.aclose)
            stack.push_async_callback(self.sessions.aclose)
