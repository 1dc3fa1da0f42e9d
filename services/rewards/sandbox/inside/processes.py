"""Ends what a call leaves running.

Guaranteed here: when `kill_all_others` returns True, no process is left in the sandbox but its init and this one, and
no new one can appear: the kernel refuses a fork to a process that has been sent SIGKILL.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection

GRACE_S = 2.0
"""How long the kernel may take to tear killed processes down; then the sandbox is not used again."""


def in_own_namespace(outside: int) -> bool:
    """Whether this process lives in another pid namespace than the service, whose inode number `outside` is."""
    return os.stat("/proc/self/ns/pid").st_ino != outside and os.getppid() in (0, 1)


def kill_all_others() -> bool:
    """Kill every other process of this pid namespace but its init. Only for a process `in_own_namespace`."""
    deadline = time.monotonic() + GRACE_S
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return True
        reap()
        if not (_living() - {1, os.getpid()}):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)


def kill_orphans(keep: Collection[int]) -> bool:
    """Kill this process's children but `keep`, and what they leave behind, which falls to this process (a subreaper)."""
    deadline = time.monotonic() + GRACE_S
    while True:
        orphans = _children() - set(keep)
        if not orphans:
            return True
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)


def reap() -> None:
    """Collect every child that has ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _living() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _children() -> set[int]:
    own = os.getpid()
    found: set[int] = set()
    for pid in _living():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name, in brackets, may hold spaces: the parent is the second field after it.
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == own:
            found.add(pid)
    return found
