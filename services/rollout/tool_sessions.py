"""The tools of a rollout: an isolated session in the rewards service, opened when the rollout starts, closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from libs.common.contracts.recipes import Recipe
from libs.common.contracts.rollouts import (
    CallTool,
    CloseToolSession,
    OpenToolSession,
    ToolSessionOpened,
    ToolText,
)
from libs.common.errors import OsmosisError
from libs.common.identifiers import RolloutId
from libs.common.platform import Platform, as_service

GRACE_S = 5.0
"""On top of a tool's own time limit: the way there and back, and the service's own error text."""
CLOSE_S = 10.0

_CALLER = as_service("rollout")
_log = structlog.get_logger(__name__)


class ToolSession:
    """An open session. `schemas` as the chat template renders them."""

    def __init__(self, platform: Platform, opened: ToolSessionOpened, timeout_s: float) -> None:
        self._platform = platform
        self._opened = opened
        self._timeout_s = timeout_s
        self.schemas = [schema.model_dump(mode="json") for schema in opened.tools]

    async def call(self, name: str, arguments: str) -> ToolText:
        """Call a tool; what goes wrong in it is a text for the model.

        Raises:
            OsmosisError: the session is gone or nobody answers.
        """
        request = CallTool(
            session_id=self._opened.session_id, name=name, arguments=arguments, timeout_s=self._timeout_s
        )
        return await self._platform.ask(
            request, _CALLER, timeout_s=self._timeout_s + GRACE_S, to=self._opened.address
        )

    async def aclose(self) -> None:
        """Close the session; a service that does not answer closes it by itself in time."""
        try:
            await self._platform.ask(
                CloseToolSession(session_id=self._opened.session_id),
                _CALLER,
                timeout_s=CLOSE_S,
                to=self._opened.address,
            )
        except OsmosisError as error:
            _log.info("a tool session was left to close by itself", error=error.message)


def uses_tools(recipe: Recipe) -> bool:
    """Whether rollouts of a run have tools."""
    return recipe.code.has_tools and bool(recipe.config.rollout.tools)


@asynccontextmanager
async def tool_session(
    platform: Platform, recipe: Recipe, rollout_id: RolloutId
) -> AsyncGenerator[ToolSession | None]:
    """The rollout's session inside the block; None when the run has no tools.

    Raises:
        OsmosisError: the tool server cannot be loaded (Invalid, in its author's words), or nobody answers.
    """
    if not uses_tools(recipe):
        yield None
        return
    limit = recipe.config.rollout.tool_timeout_s
    request = OpenToolSession(
        run_id=recipe.run_id,
        rollout_id=rollout_id,
        code=recipe.code,
        tools=recipe.config.rollout.tools,
        timeout_s=limit,
    )
    opened = await platform.ask(request, _CALLER, timeout_s=limit + GRACE_S)
    session = ToolSession(platform, opened, limit)
    try:
        yield session
    finally:
        # A rollout that is cancelled ends its session all the same.
        await asyncio.shield(session.aclose())
