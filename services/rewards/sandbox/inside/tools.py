"""The template of a project's tools: loads the server once, and forks it for each session.

Guaranteed here: a session speaks MCP over a descriptor that the service gave for it alone; what a tool prints never
reaches that descriptor by accident; when a session ends, so does everything that it started, and its folder is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
from typing import Any

from . import processes
from .rehearsal import rehearse
from .server_loading import LoadError, load_server
from .split_streams import standard_streams
from .walls import restore_signals
from .wire import Channel


class ToolTemplate:
    """Opens and closes sessions until the service closes its end."""

    def __init__(self, channel: Channel, start: dict[str, Any]) -> None:
        self._channel = channel
        self._project: str = start["project"]
        self._cpu_seconds = int(start["limits"]["cpu_s"])
        self._sessions: dict[int, int] = {}
        self._folders: dict[int, str] = {}

    def serve(self) -> None:
        """Load the server, say how that went, then open and close sessions."""
        try:
            server, kind, warnings = load_server(self._project)
        except LoadError as error:
            self._channel.send({"load_error": str(error)})
            return
        rehearse(kind)
        gc.collect()
        gc.freeze()
        self._channel.send({"loaded": True, "warnings": warnings})
        ended_read, ended_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, _noticed)
        signal.set_wakeup_fd(ended_write, warn_on_full_buffer=False)
        while self._step(server, ended_read):
            pass

    def _step(self, server: Any, ended: int) -> bool:
        ready, _, _ = select.select([self._channel.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            self._reap()
        if self._channel.fileno() not in ready:
            return True
        message, descriptor = self._channel.receive_with_descriptor()
        if message is None:
            return False
        if "open" in message and descriptor is not None:
            self._open(int(message["open"]), descriptor, server)
        elif "close" in message:
            self._close(int(message["close"]))
        return True

    def _open(self, session: int, descriptor: int, server: Any) -> None:
        folder = tempfile.mkdtemp(prefix=f"session-{session}-")
        try:
            pid = os.fork()
        except OSError:
            # The service sees its end close, as with a server that died.
            os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)
            return
        if pid == 0:
            self._channel.connection.close()
            _session(server, descriptor, folder, self._cpu_seconds)
        os.close(descriptor)
        self._sessions[session], self._folders[session] = pid, folder

    def _close(self, session: int) -> None:
        pid = self._sessions.get(session)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._forget(session)

    def _reap(self) -> None:
        """A child has ended: a session, or something that one left behind."""
        for session, pid in list(self._sessions.items()):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    self._forget(session)
        processes.kill_orphans(self._sessions.values())

    def _forget(self, session: int) -> None:
        del self._sessions[session]
        processes.kill_orphans(self._sessions.values())
        shutil.rmtree(self._folders.pop(session), ignore_errors=True)


def _noticed(_number: int, _frame: object) -> None:
    """A handler must be there for the signal to wake the loop."""


def _session(server: Any, descriptor: int, folder: str, cpu_seconds: int) -> None:
    """Serve MCP until the service closes its end. Leaves the process."""
    with contextlib.suppress(BaseException):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        restore_signals()
        os.environ.update(TMPDIR=folder, HOME=folder)
        tempfile.tempdir = None
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        sys.stdin, sys.stdout = standard_streams(os.dup(descriptor), descriptor)
        asyncio.run(server.run_stdio_async(show_banner=False))
    os._exit(0)
