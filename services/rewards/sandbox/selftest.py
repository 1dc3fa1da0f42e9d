"""Which walls stand on this machine: one sandbox is started and tries each of them from within."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from libs.common.errors import Unavailable
from services.rewards.sandbox.launch import START_S, Launcher
from services.rewards.sandbox.limits import Limits
from services.rewards.sandbox.link import LinkClosed
from services.rewards.sandbox.project import SandboxProject

_REMEDY = (
    "Unprivileged user namespaces must be allowed (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, "
    "a security profile that permits them in a container); OSMOSIS_SANDBOX=none runs user code without walls"
)


@dataclass(frozen=True)
class WallReport:
    """What the self-test found: for each wall, None where it stands, else what could be done past it."""

    walls: dict[str, str | None]

    @property
    def missing(self) -> dict[str, str]:
        """The walls that do not stand, with the reason."""
        return {name: reason for name, reason in self.walls.items() if reason is not None}


async def report_walls(launcher: Launcher) -> WallReport:
    """Start a sandbox and try its walls. Raises Unavailable when none can be started."""
    if launcher.walls == "none":
        return WallReport({"all": "OSMOSIS_SANDBOX=none: user code runs without walls"})
    with tempfile.TemporaryDirectory(prefix="osmosis-probe-") as folder:
        await asyncio.to_thread(Path(folder).chmod, 0o755)
        project = SandboxProject(Path(folder), commit="probe")
        sandbox = await launcher.start(project, replace(Limits(), processes=16), "probe")
        try:
            async with asyncio.timeout(START_S):
                answer = await sandbox.link.receive()
        except (LinkClosed, TimeoutError) as error:
            raise Unavailable(f"the sandbox's self-test did not answer: {error}") from error
        finally:
            await sandbox.kill()
    return _read(answer)


def _read(answer: dict[str, Any]) -> WallReport:
    walls: object = answer.get("walls")
    if not isinstance(walls, dict):
        raise Unavailable("the sandbox's self-test answered without a list of walls")
    found = cast("dict[str, object]", walls)
    return WallReport({name: None if reason is None else str(reason) for name, reason in found.items()})


async def require_walls(launcher: Launcher, allowed_missing: frozenset[str] = frozenset()) -> WallReport:
    """The report, if every wall stands but those that the operator allows to be missing by name.

    Raises Unavailable that names each other missing wall and what could be done.
    """
    try:
        report = await report_walls(launcher)
    except Unavailable as error:
        raise Unavailable(f"{error.message}. {_REMEDY}") from error
    unexpected = {name: why for name, why in report.missing.items() if name not in allowed_missing}
    if unexpected:
        listed = "; ".join(f"{name}: {why}" for name, why in sorted(unexpected.items()))
        raise Unavailable(
            f"walls of the sandbox are missing ({listed}). Allow them by name in OSMOSIS_SANDBOX_ALLOW_MISSING, "
            f"or: {_REMEDY}"
        )
    return report
