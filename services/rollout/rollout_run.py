"""Runs one rollout, and the rollouts of a group with their replacements. No database on the way.

Guaranteed here: a rollout ends within its time limit and its batch's, whatever its engine or tools do; what went wrong
is its error, never a reward; a group ends once every seat has a rollout that completed, or no replacement is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import structlog

from libs.common.contracts.trajectories import Trajectory
from libs.common.errors import OsmosisError
from libs.common.identifiers import RolloutId
from libs.common.platform import Platform
from libs.common.tokens import derive_token
from services.rollout.agent_loop import run_agent_loop
from services.rollout.chat import ChatAnswer, ChatParams, Chats
from services.rollout.engine import EngineAddress
from services.rollout.live import Budget, Limits, LiveRollout, LiveRollouts
from services.rollout.messages import Message
from services.rollout.outcomes import GroupOutcome, Replaced, group_of, never_started, trajectory_of
from services.rollout.plans import GroupPlan, Seat
from services.rollout.seeds import seed_of
from services.rollout.tool_sessions import tool_session

_log = structlog.get_logger(__name__)


@dataclass
class _Progress:
    """Of one group under way: replacements left, and the rollouts that were replaced."""

    replacements: int
    replaced: list[Replaced] = field(default_factory=list[Replaced])


class RolloutRunner:
    """Runs rollouts with an engine client, tool sessions and a bound on how many run at once."""

    def __init__(
        self,
        platform: Platform,
        chats: Chats,
        live: LiveRollouts,
        *,
        places: int,
        new_rollout_id: Callable[[], RolloutId],
    ) -> None:
        self._platform = platform
        self._chats = chats
        self._live = live
        self._places = asyncio.Semaphore(places)
        self._new_rollout_id = new_rollout_id

    async def run_group(self, plan: GroupPlan) -> GroupOutcome:
        """Run a rollout in every seat, all at once, and again where one failed and may be replaced."""
        progress = _Progress(plan.recipe.config.rollout.max_replacements)
        async with asyncio.TaskGroup() as tasks:
            seats = [tasks.create_task(self._fill(plan, seat, progress)) for seat in plan.claim.seats]
        ended = [task.result() for task in seats]
        group = group_of(plan.claim, [trajectory for _, trajectory in ended])
        return GroupOutcome(group, tuple(seat for seat, _ in ended), tuple(progress.replaced))

    async def _fill(self, plan: GroupPlan, seat: Seat, progress: _Progress) -> tuple[Seat, Trajectory]:
        while True:
            async with self._places:
                trajectory = await self._run(plan, seat)
            if trajectory.status == "completed" or not progress.replacements or self._seconds_left(plan) <= 0:
                return seat, trajectory
            progress.replacements -= 1
            progress.replaced.append(Replaced(seat, trajectory))
            _log.info("a rollout is replaced", rollout=seat.rollout_id, error=trajectory.error)
            seat = Seat(self._new_rollout_id(), seat.sample_index, seat.replacement + 1)

    async def _run(self, plan: GroupPlan, seat: Seat) -> Trajectory:
        config = plan.recipe.config.rollout
        left_s = self._seconds_left(plan)
        if left_s <= 0:
            return never_started(plan.claim, seat, "its batch's deadline came before it could start")
        rollout = self._begin(plan, seat)
        started, finish_reason, error = perf_counter(), "error", None
        limit_s = min(config.timeout_s, left_s)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                finish_reason = await self._converse(plan, rollout, limit_s)
        except TimeoutError:
            error = (
                f"it did not end within {limit_s:.3g} s; raise rollout.timeout_s or lower the run's limits"
            )
            if not limit.expired():
                error = "a peer did not answer in time"
        except OsmosisError as fault:
            error = fault.message
        except Exception as fault:  # noqa: BLE001 - one rollout's defect must not take its group along; logged here
            _log.error("a rollout failed inside", rollout=seat.rollout_id, exc_info=fault)
            error = f"it failed inside the broker ({type(fault).__name__}); the broker's log says why"
        finally:
            await self._live.end(rollout)
        return trajectory_of(
            plan.claim,
            seat,
            plan.prompt,
            rollout,
            finish_reason=finish_reason,
            error=error,
            duration_s=perf_counter() - started,
        )

    async def _converse(self, plan: GroupPlan, rollout: LiveRollout, limit_s: float) -> str:
        async def chat(messages: Sequence[Message]) -> ChatAnswer:
            return await self._chats.answer(rollout, messages, ChatParams(), timeout_s=limit_s)

        async with tool_session(self._platform, plan.recipe, rollout.id) as tools:
            rollout.tools = tools.schemas if tools is not None else []
            return await run_agent_loop(
                rollout,
                chat,
                tools,
                scripted=plan.prompt.scripted,
                max_turns=plan.recipe.config.rollout.max_turns,
            )

    def _begin(self, plan: GroupPlan, seat: Seat) -> LiveRollout:
        batch, config = plan.claim.batch, plan.recipe.config.rollout
        secret = self._platform.settings.deployment_secret
        limits = Limits(config.max_turns, config.max_tokens_total, plan.renderer.context_length)
        rollout = LiveRollout(
            id=seat.rollout_id,
            run_id=batch.run_id,
            epoch=batch.epoch,
            phase=batch.phase,
            token=derive_token(secret, "rollout", seat.rollout_id, batch.epoch),
            engine=EngineAddress(
                batch.engine_url.rstrip("/"), derive_token(secret, "engine", batch.run_id, batch.epoch)
            ),
            renderer=plan.renderer,
            sampling=batch.sampling,
            budget=Budget(limits),
            seed_of_turn=lambda turn: seed_of(
                batch.seed, plan.claim.row_index, seat.sample_index, turn, seat.replacement
            ),
            messages=[dict(message) for message in plan.prompt.messages],
        )
        self._live.begin(rollout)
        return rollout

    def _seconds_left(self, plan: GroupPlan) -> float:
        return (plan.claim.batch.deadline - self._platform.clock.now()).total_seconds()
