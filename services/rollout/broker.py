"""The broker at work: claims groups, runs them, ends them, and lets go of what nobody wants any more.

Guaranteed here: every claimed group is ended, handed back or abandoned; after a restart what was under way starts
again; a group of an older epoch is cancelled as soon as it is heard of, and its results are refused in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from libs.common.identifiers import GroupId, RunId
from services.rollout.claims import RENEW_S, Claims
from services.rollout.endings import Endings
from services.rollout.outcomes import GroupOutcome, group_of, never_started
from services.rollout.plans import GroupClaim, GroupPlan
from services.rollout.preparation import CannotRun, Preparation
from services.rollout.rollout_run import RolloutRunner

POLL_S = 1.0
"""How soon a replica sees groups that another one let in and has no places for."""
HAND_BACK_S = 2.0

_log = structlog.get_logger(__name__)


class Broker:
    """Runs groups until cancelled. `in_flight`: rollouts at once."""

    def __init__(
        self,
        claims: Claims,
        preparation: Preparation,
        runner: RolloutRunner,
        endings: Endings,
        *,
        in_flight: int,
        alone: bool,
    ) -> None:
        self._claims = claims
        self._preparation = preparation
        self._runner = runner
        self._endings = endings
        self._in_flight = in_flight
        self._alone = alone
        self._woken = asyncio.Event()
        self._running: dict[GroupId, tuple[GroupClaim, asyncio.Task[None]]] = {}

    def wake(self) -> None:
        """There may be something to run."""
        self._woken.set()

    def drop(self, run_id: RunId, through_epoch: int) -> None:
        """Nobody wants the groups of these epochs any more."""
        for claim, task in list(self._running.values()):
            if claim.batch.run_id == run_id and claim.batch.epoch <= through_epoch:
                task.cancel()

    async def run(self) -> None:
        """Claim and run until cancelled; what is under way then is handed back."""
        if self._alone:
            # No other replica lives: what this process's last life had claimed starts again at once.
            await self._claims.hand_back(everybodys=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_claims(), name="rollout:claims")
                while True:
                    await self._turn(tasks)
        finally:
            await self._hand_back()

    async def _turn(self, tasks: asyncio.TaskGroup) -> None:
        self._woken.clear()
        claimed = await self._claim()
        for claims in _by_batch(claimed):
            plans = tasks.create_task(self._prepare(claims), name=f"prepare:{claims[0].batch.batch_id}")
            for claim in claims:
                task = tasks.create_task(self._run(claim, plans), name=f"group:{claim.group_id}")
                self._running[claim.group_id] = (claim, task)
                task.add_done_callback(partial(self._ended, claim.group_id))
        if not claimed:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._woken.wait()

    async def _claim(self) -> list[GroupClaim]:
        places = self._in_flight - sum(len(claim.seats) for claim, _ in self._running.values())
        if places <= 0:
            return []
        try:
            return await self._claims.take(places)
        except Exception as error:  # noqa: BLE001 - the database is a peer: it may be back at the next turn
            _log.warning("no group could be claimed", exc_info=error)
            return []

    async def _prepare(self, claims: Sequence[GroupClaim]) -> dict[GroupId, GroupPlan | str]:
        try:
            plans = await self._preparation.plans(claims)
        except CannotRun as reason:
            plans = [str(reason)] * len(claims)
        return {claim.group_id: plan for claim, plan in zip(claims, plans, strict=True)}

    async def _run(self, claim: GroupClaim, plans: asyncio.Task[dict[GroupId, GroupPlan | str]]) -> None:
        try:
            plan = (await asyncio.shield(plans))[claim.group_id]
            if isinstance(plan, str):
                outcome, recipe = _none_run(claim, plan), None
            else:
                outcome, recipe = await self._runner.run_group(plan), plan.recipe
            if not await self._endings.end(claim, outcome, recipe):
                _log.info("a group is no longer wanted here", group=claim.group_id)
        except Exception as error:  # noqa: BLE001 - the claim runs out and the group starts again; logged here
            _log.error("a group could not be ended", group=claim.group_id, exc_info=error)

    def _ended(self, group_id: GroupId, task: asyncio.Task[None]) -> None:
        held = self._running.get(group_id)
        if held is not None and held[1] is task:
            del self._running[group_id]
        self.wake()

    async def _keep_claims(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            asked = dict(self._running)
            if not asked:
                continue
            try:
                held = await self._claims.renew(asked.keys())
            except Exception as error:  # noqa: BLE001 - as in _claim
                _log.warning("claims could not be renewed", exc_info=error)
                continue
            for group_id, (_, task) in asked.items():
                if group_id not in held:
                    task.cancel()

    async def _hand_back(self) -> None:
        try:
            async with asyncio.timeout(HAND_BACK_S):
                await self._claims.hand_back()
        except Exception as error:  # noqa: BLE001 - the claims run out by themselves
            _log.info("claims were left to run out", error=repr(error))


def _by_batch(claims: Iterable[GroupClaim]) -> list[list[GroupClaim]]:
    batches: dict[str, list[GroupClaim]] = {}
    for claim in claims:
        batches.setdefault(claim.batch.batch_id, []).append(claim)
    return list(batches.values())


def _none_run(claim: GroupClaim, reason: str) -> GroupOutcome:
    ended = [never_started(claim, seat, reason) for seat in claim.seats]
    return GroupOutcome(group_of(claim, ended), claim.seats)
