"""Scores groups and answers tool calls: load, have it run in a sandbox, tell.

Guaranteed here: every group gets its scores, also when its code is broken or no sandbox can be had for it; user code
never makes a handler fail. Tools are for the platform's own services alone.
"""

from __future__ import annotations

import structlog

from libs.common.bus import RetryPolicy
from libs.common.consuming import Work
from libs.common.contracts.recipes import CodeSnapshot
from libs.common.contracts.requests import Caller, Done
from libs.common.contracts.rollouts import (
    CallTool,
    CloseToolSession,
    GroupSampled,
    GroupScored,
    OpenToolSession,
    ToolSchema,
    ToolSessionOpened,
    ToolText,
)
from libs.common.contracts.trajectories import Group
from libs.common.errors import Forbidden, Invalid, Unavailable
from libs.common.parcels import unpack
from libs.common.platform import Platform
from services.rewards.domain import scoring
from services.rewards.domain.tool_result import error_text
from services.rewards.domain.verdicts import RewardVerdict
from services.rewards.sandbox import SandboxProject
from services.rewards.sandboxes import Sandboxes
from services.rewards.store import RewardsStore

_log = structlog.get_logger(__name__)


class Scoring:
    """What happens when a group was sampled."""

    def __init__(self, platform: Platform, sandboxes: Sandboxes) -> None:
        self._platform = platform
        self._sandboxes = sandboxes

    async def score_group(self, fact: GroupSampled, work: Work[RewardsStore]) -> None:
        """Call the run's reward functions on every completed trajectory and state the scores."""
        group = await unpack(self._platform.blobs, fact.group, Group)
        verdicts = await self._verdicts(fact, group, last=work.delivery >= RetryPolicy().deliveries)
        async with work.finish() as uow:
            uow.emit(
                GroupScored(
                    workspace_id=fact.workspace_id,
                    group_id=fact.group_id,
                    batch_id=fact.batch_id,
                    run_id=fact.run_id,
                    epoch=fact.epoch,
                    scores=scoring.scores_of(group, fact.rewards, verdicts),
                )
            )

    async def _verdicts(self, fact: GroupSampled, group: Group, *, last: bool) -> list[list[RewardVerdict]]:
        samples = [scoring.input_of(trajectory) for trajectory in scoring.scorable(group)]
        try:
            project = await self._sandboxes.project(fact.code)
            return await self._sandboxes.pools.call_rewards(
                project, scoring.functions_of(fact.rewards), samples, scoring.limits_of(fact.scoring)
            )
        except Invalid as error:
            return scoring.all_without_value(group, fact.rewards, error.message)
        except Unavailable as error:
            # A batch never waits for ever: the last delivery tells what there is.
            _log.warning("a group could not be scored", group=fact.group_id, error=error.message, last=last)
            if not last:
                raise
            return scoring.all_without_value(group, fact.rewards, error.message)


class Tools:
    """What the rollout broker asks of a project's tools."""

    def __init__(self, sandboxes: Sandboxes, address: str) -> None:
        self._sandboxes = sandboxes
        self._address = address

    async def open(self, request: OpenToolSession, caller: Caller) -> ToolSessionOpened:
        """Start an isolated session; its calls go to this replica."""
        _only_services(caller)
        project = await self._project(request.code)
        schemas = chosen(await self._sandboxes.tools.list_tools(project), request.tools)
        session = await self._sandboxes.tools.open(project, request.timeout_s)
        allowed = frozenset(str(schema.function["name"]) for schema in schemas)
        session_id = self._sandboxes.sessions.add(session, allowed)
        return ToolSessionOpened(session_id=session_id, address=self._address, tools=schemas)

    async def call(self, request: CallTool, caller: Caller) -> ToolText:
        """Call a tool; a fault of the tool is a text for the model."""
        _only_services(caller)
        found = self._sandboxes.sessions.get(request.session_id)
        if found.allowed is not None and request.name not in found.allowed:
            return ToolText(text=error_text(f"Unknown tool: {request.name!r}"), failed=True)
        return await found.session.call(request.name, request.arguments, request.timeout_s)

    async def close(self, request: CloseToolSession, caller: Caller) -> Done:
        """End a session."""
        _only_services(caller)
        await self._sandboxes.sessions.close(request.session_id)
        return Done()

    async def _project(self, code: CodeSnapshot) -> SandboxProject:
        if not code.has_tools:
            raise Invalid(
                "the synced commit has no tool server: add mcp/main.py and sync, or run without tools"
            )
        return await self._sandboxes.project(code)


def chosen(schemas: list[ToolSchema], wanted: list[str] | str) -> list[ToolSchema]:
    """The wanted tools, in the server's order. Raises Invalid that names those which are not there."""
    if isinstance(wanted, str):
        return schemas
    there = {str(schema.function["name"]) for schema in schemas}
    missing = [name for name in wanted if name not in there]
    if missing:
        raise Invalid(
            f"the tool server has no {', '.join(missing)}; it has {', '.join(sorted(there)) or 'no tools'}"
        )
    return [schema for schema in schemas if schema.function["name"] in wanted]


def _only_services(caller: Caller) -> None:
    if caller.kind != "service":
        raise Forbidden("tool sessions are the rollout service's")
