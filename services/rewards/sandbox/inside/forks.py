"""One call, one fork: the child runs user code, the template watches it.

Guaranteed here: the child has no descriptor of the service's; its answer and its printed text come over pipes of this
call alone; when `run` returns, the child and all that it started are dead and the clock, its processor time and its
output stayed within the limits, or the report says which did not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .walls import restore_signals

_CHUNK = 1 << 16
FORK_PATIENCE_S = 2.0
"""How long a fork is tried again while the processes of the call before are still being torn down."""


@dataclass
class Ended:
    """How a call ended: what the child answered, what it printed (cut) and how much, and why it stopped."""

    answer: bytes = b""
    output: bytes = b""
    printed: int = 0
    timed_out: bool = False
    status: int = 0
    seconds: float = 0.0


@dataclass
class Watch:
    """The template's view of a running child."""

    pid: int
    answer_fd: int
    output_fd: int
    limits: dict[str, Any]
    ended: Ended = field(default_factory=Ended)

    def take(self, fd: int) -> bool:
        """Read once without waiting. False when there is nothing more for now."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if fd == self.answer_fd:
            # One byte more than allowed is kept, so that a reader can see that there was too much.
            self.ended.answer += data[: int(self.limits["result_bytes"]) + 1 - len(self.ended.answer)]
        else:
            self.ended.output += data[: int(self.limits["output_bytes"]) - len(self.ended.output)]
            self.ended.printed += len(data)
        return bool(data)


def run(
    work: Callable[[], dict[str, Any]], limits: dict[str, Any], service_fd: int, end_all: Callable[[], bool]
) -> Ended:
    """Run `work` in a fork. `end_all` ends every process that the child may have started.

    Raises OSError when no process can be started, or SystemExit when the service went away meanwhile.
    """
    answer_read, answer_write = os.pipe()
    output_read, output_write = os.pipe()
    started = time.monotonic()
    pid = _fork()
    if pid == 0:
        os.close(service_fd)
        _child(work, answer_write, output_write, limits)
    os.close(answer_write)
    os.close(output_write)
    for fd in (answer_read, output_read):
        os.set_blocking(fd, False)
    watch = Watch(pid, answer_read, output_read, limits)
    try:
        _until_end(watch, started + float(limits["wall_s"]), service_fd)
        watch.ended.seconds = time.monotonic() - started
        _collect(watch, end_all)
    finally:
        os.close(answer_read)
        os.close(output_read)
    return watch.ended


def _fork() -> int:
    deadline = time.monotonic() + FORK_PATIENCE_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def _child(work: Callable[[], dict[str, Any]], answer: int, output: int, limits: dict[str, Any]) -> None:
    code = 1
    with contextlib.suppress(BaseException):
        restore_signals()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), "utf-8", "backslashreplace", line_buffering=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", "backslashreplace", line_buffering=True)
        seconds = int(limits["cpu_s"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        text = json.dumps(work())
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(answer, data) :]
        code = 0
    os._exit(code)


def _until_end(watch: Watch, deadline: float, service_fd: int) -> None:
    """Read both pipes until the child has ended or its time is over; then it is dead."""
    process = os.pidfd_open(watch.pid)
    try:
        poll = select.poll()
        for fd in (watch.answer_fd, watch.output_fd, process):
            poll.register(fd, select.POLLIN)
        poll.register(service_fd, select.POLLRDHUP)
        while True:
            left = deadline - time.monotonic()
            ready = dict(poll.poll(max(left, 0) * 1000)) if left > 0 else {}
            if service_fd in ready:
                raise SystemExit("the service closed its end")
            for fd in (watch.answer_fd, watch.output_fd):
                if fd in ready and not watch.take(fd):
                    poll.unregister(fd)
            if process in ready:
                return
            if left <= 0:
                watch.ended.timed_out = True
                os.kill(watch.pid, signal.SIGKILL)
                return
    finally:
        os.close(process)


def _collect(watch: Watch, end_all: Callable[[], bool]) -> None:
    _, watch.ended.status = os.waitpid(watch.pid, 0)
    if not end_all():
        raise SystemExit("processes of a call could not be ended")
    for fd in (watch.answer_fd, watch.output_fd):
        while watch.take(fd):
            pass
