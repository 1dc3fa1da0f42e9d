"""One warm template of a pool, seen from the service.

Guaranteed here: verdicts are filled in order, each from the report that carries the number of its own call; whatever
the sandbox does, `run` ends, at least one call has a verdict more, and a worker that can't be trusted is not usable.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from services.rewards.domain.inputs import FunctionRef
from services.rewards.domain.verdicts import RewardVerdict, no_value, read_report
from services.rewards.sandbox import Launcher, Limits, Sandbox, SandboxProject
from services.rewards.sandbox.link import LinkClosed

ANSWER_GRACE_S = 5.0
"""Seconds beyond a call's own limit in which its template must answer, on a machine that is busy."""


@dataclass
class Call:
    """One function on one sample; `verdict` is set once."""

    function: FunctionRef
    inputs: dict[str, Any]
    verdict: RewardVerdict | None = None


class Worker:
    """A sandbox that serves calls, one after the other."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._importing: str | None = None
        self.usable = True

    @classmethod
    async def start(cls, launcher: Launcher, project: SandboxProject, limits: Limits) -> Worker:
        """Raises Unavailable when the sandbox does not start."""
        return cls(await launcher.start(project, limits, "rewards"), limits)

    async def run(self, calls: list[Call]) -> None:
        """Give verdicts to calls, from the first on. Where it stops early, the worker is not usable any more."""
        self.usable = False
        try:
            await self._sandbox.link.send(
                {"calls": [_wire(number, call) for number, call in enumerate(calls)]}
            )
            for number, call in enumerate(calls):
                report = await self._report(number)
                call.verdict = read_report(report, self._limits)
                if report.get("retire") is not False:
                    return
            self.usable = True
        except (LinkClosed, TimeoutError) as error:
            self._blame(calls, late=isinstance(error, TimeoutError))

    async def _report(self, number: int) -> dict[str, Any]:
        """The report of that call. Raises TimeoutError, or LinkClosed for a report of any other."""
        while True:
            allowed = self._limits.wall_s if self._importing is None else self._limits.import_s
            async with asyncio.timeout(allowed + ANSWER_GRACE_S):
                message = await self._sandbox.link.receive()
            if isinstance(message.get("importing"), str):
                self._importing = message["importing"]
            elif "imported" in message:
                self._importing = None
            elif message.get("call") == number:
                return message
            else:
                raise LinkClosed("a report of another call")

    def _blame(self, calls: list[Call], *, late: bool) -> None:
        """Say of the call during which the sandbox was lost what happened; or of all whose module was being imported."""
        waiting = [call for call in calls if call.verdict is None]
        if self._importing is not None:
            why = f"took over {self._limits.import_s:g} seconds" if late else "ended the process"
            for call in waiting:
                if call.function.file == self._importing:
                    call.verdict = no_value("import", f"importing {self._importing} {why}")
        if waiting and all(call.verdict is None for call in waiting):
            waiting[0].verdict = (
                no_value("timeout", "stopped its sandbox, which was ended")
                if late
                else no_value("crash", "ended its sandbox")
            )

    async def close(self) -> None:
        """End the sandbox and everything in it."""
        self.usable = False
        await self._sandbox.kill()


def _wire(number: int, call: Call) -> dict[str, Any]:
    function = call.function
    return {"call": number, "file": function.file, "function": function.function, "inputs": call.inputs}
