"""The last walls, put up from within before any user code runs: user, limits, no looking into each other.

Guaranteed here: after `raise_walls` the process has no capability and an unprivileged user, cannot gain privileges,
is invisible to `/proc/PID/mem` and core dumps, and its limits can only be lowered. Where bubblewrap built the walls,
it checks that they stand and refuses to go on else.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import Any

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36

ADDRESS_SLACK = 1 << 30
"""Bytes of address space beside private memory: libraries, and ranges that are reserved and never touched."""

# A call must not be able to stop its template by a signal that can be ignored.
_NAMES = "INT TERM HUP QUIT ALRM USR1 USR2 IO PIPE VTALRM PROF TSTP TTIN TTOU"
IGNORED = tuple(signal.Signals[f"SIG{name}"] for name in _NAMES.split())


class WallMissing(Exception):
    """A wall that was asked for does not stand."""


def close_all_but(keep: int) -> None:
    """Close every descriptor but the standard three and `keep`: what the launcher left open must not be reachable."""
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 20)


def raise_walls(limits: dict[str, Any], user: int | None, walled: bool) -> None:
    """Leave privileges behind. `user`: whom to become (None: stay). Raises WallMissing."""
    _prefer_as_oom_victim()
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _lower_limits(limits, walled)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise WallMissing(f"prctl({option}) failed with errno {ctypes.get_errno()}")
    if walled:
        _check()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def _prefer_as_oom_victim() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        return


def _lower_limits(limits: dict[str, Any], walled: bool) -> None:
    memory = int(limits["memory_bytes"])
    wanted = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_AS: memory + ADDRESS_SLACK,
        resource.RLIMIT_NOFILE: int(limits["open_files"]),
        resource.RLIMIT_FSIZE: int(limits["file_bytes"]),
        resource.RLIMIT_CORE: 0,
    }
    if walled:
        # Without a user namespace the count is of all the user's processes on the machine: it would bite at once.
        wanted[resource.RLIMIT_NPROC] = int(limits["processes"])
    for kind, value in wanted.items():
        resource.setrlimit(kind, (value, value))


def _check() -> None:
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    for name in ("CapPrm", "CapEff", "CapAmb"):
        if int(status[name], 16) != 0:
            raise WallMissing(f"{name} is {status[name]}: capabilities are left")
    if status.get("Seccomp") != "2":
        raise WallMissing("no system-call filter is installed")
    if status.get("NoNewPrivs") != "1":
        raise WallMissing("privileges could be gained")
    if os.getuid() == 0 or os.geteuid() == 0:
        raise WallMissing("the process is still root")


def restore_signals() -> None:
    """In a fork for user code: the dispositions that a Python program expects."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
