"""Tries each wall from within, as the self-test at the service's start. A wall stands when the attempt fails."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

_CLONE_NEWUSER = 0x10000000
_MOST_FORKS = 1024


def answer(start: dict[str, Any]) -> dict[str, Any]:
    """`{"walls": {name: reason or None}}`: None where the wall stands, else what could be done."""
    checks: dict[str, Callable[[], str | None]] = {
        "network": _network,
        "processes": lambda: _processes(int(start["outside_pid_namespace"])),
        "files": _files,
        "unprivileged-user": _user,
        "process-limit": _process_limit,
        "namespaces": lambda: _system_call("unshare", _CLONE_NEWUSER),
        "tracing": lambda: _system_call("ptrace", 0, 0, 0, 0),
        "mounting": lambda: _system_call("mount", None, None, None, 0, None),
        "environment": lambda: _environment(start["found_environment"]),
        "descriptors": lambda: _descriptors(int(start["control_fd"])),
    }
    return {"walls": {name: check() for name, check in checks.items()}}


def _network() -> str | None:
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        return None
    return "an internet socket could be opened"


def _processes(outside: int) -> str | None:
    if os.stat("/proc/self/ns/pid").st_ino == outside:
        return "the service's processes are visible"
    return None


def _files() -> str | None:
    for folder in ("/", "/dev", "/proc/sys/kernel", "/project", "/osmosis"):
        if os.access(folder, os.W_OK):
            return f"{folder} is writable"
    seen = set(os.listdir("/")) - {"dev", "proc", "tmp", "lib", "lib64", "usr", "project", "osmosis", "etc"}
    allowed = {sys.base_prefix.split("/")[1]}
    return f"unexpected folders at the root: {sorted(seen - allowed)}" if seen - allowed else None


def _user() -> str | None:
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    if os.getuid() == 0 or int(status["CapEff"], 16) or int(status["CapPrm"], 16):
        return "the sandbox's user is root or has capabilities"
    return None


def _process_limit() -> str | None:
    """Fork up to one more than the limit: the kernel must refuse before."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit == resource.RLIM_INFINITY or limit > _MOST_FORKS:
        return f"the limit on processes is {limit}"
    gate, hold = os.pipe()
    children: list[int] = []
    try:
        for _ in range(limit + 1):
            pid = os.fork()
            if pid == 0:
                os.close(hold)
                os.read(gate, 1)
                os._exit(0)
            children.append(pid)
    except BlockingIOError:
        return None
    finally:
        os.close(hold)
        os.close(gate)
        for pid in children:
            os.waitpid(pid, 0)
    return f"{len(children)} processes could be started with a limit of {limit}"


def _environment(found: list[str]) -> str | None:
    # The first is bubblewrap's, the second Python's own.
    left = set(found) - {"PWD", "LC_CTYPE"}
    return f"variables came in from outside: {sorted(left)}" if left else None


def _system_call(name: str, *arguments: object) -> str | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) == -1:
        return None
    return f"{name} succeeded"


def _descriptors(control: int) -> str | None:
    # One more is the listing's own.
    extra = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, control}
    return f"{len(extra)} descriptors are open" if len(extra) > 1 else None
