"""First and last thing that runs in a sandbox: walls, then the role that the service asked for.

Started as `main(control_fd, user, walled)`; everything else, secrets included, comes in the first message, so that no
command line shows it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from . import processes, walls
from .wire import Channel


def main(control_fd: int, user: int | None, walled: bool) -> None:
    """Run until the service closes its end. Leaves the process."""
    walls.close_all_but(control_fd)
    channel = Channel(socket.socket(fileno=control_fd))
    start = channel.receive()
    if start is None:
        os._exit(0)
    try:
        walls.raise_walls(start["limits"], user, walled)
    except (walls.WallMissing, OSError, ValueError) as error:
        channel.send({"refused": f"{type(error).__name__}: {error}"})
        os._exit(1)
    start["control_fd"] = control_fd
    start["found_environment"] = sorted(os.environ)
    _enter(start)
    channel.send({"ready": True})
    _silence()
    _role(channel, start, _ending(start, walled))()
    os._exit(0)


def _enter(start: dict[str, Any]) -> None:
    """The environment and search path of the project, and nothing of ours on it."""
    os.environ.clear()
    os.environ.update(start["environment"])
    standard = [path for path in sys.path if path != start["runtime"]]
    first, *later = start["import_path"]
    sys.path[:] = [first, *standard, *later]
    sys.argv[:] = [first]
    os.chdir(start["project"])


def _silence() -> None:
    """What the template prints, at import or later, goes nowhere; a call has pipes of its own."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)


def _ending(start: dict[str, Any], walled: bool) -> Callable[[], bool]:
    if walled and processes.in_own_namespace(int(start["outside_pid_namespace"])):
        return processes.kill_all_others
    return lambda: processes.kill_orphans(())


def _role(channel: Channel, start: dict[str, Any], end_all: Callable[[], bool]) -> Callable[[], None]:
    match start["role"]:
        case "rewards":
            from .rewards import RewardTemplate

            return RewardTemplate(channel, start, end_all).serve
        case "tools":
            from .tools import ToolTemplate

            return ToolTemplate(channel, start).serve
        case "probe":
            from .probe import answer

            return lambda: channel.send(answer(start))
        case role:
            raise ValueError(f"unknown role {role}")
