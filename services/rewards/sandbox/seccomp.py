"""The system-call filter of a sandbox, assembled here as classic BPF: no C library, no build step.

Guaranteed here: a call of the refused table fails with EPERM; a new process cannot have new namespaces; sockets are
Unix sockets only; another process's limits cannot be changed; calls of another architecture kill the process, calls
newer than the table do not exist (ENOSYS). Everything else passes: what a process may reach is the namespaces' and
mounts' part.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from typing import Literal

from services.rewards.sandbox import syscalls
from services.rewards.sandbox.syscalls import Numbers

Architecture = Literal["x86_64", "aarch64"]

# linux/audit.h: ELF machine, 64 bit, little endian.
_AUDIT_ARCH: dict[Architecture, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# linux/bpf_common.h, linux/seccomp.h.
_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16

_X32_BIT = 0x40000000
_AF_UNIX = 1
_TTY_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# linux/sched.h: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000


def this_architecture() -> Architecture:
    """The machine's architecture. Raises RuntimeError where there is no filter for it."""
    machine = platform.machine()
    if machine == "x86_64" or machine == "aarch64":
        return machine
    raise RuntimeError(f"no system-call filter for {machine}: sandboxes run on x86_64 and aarch64")


def program(architecture: Architecture) -> bytes:
    """The filter for `bwrap --seccomp`: an array of `struct sock_filter`, 8 bytes each."""
    return b"".join(_instructions(architecture))


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _argument(index: int) -> bytes:
    """Load the low half of an argument (little endian): flags and small integers need no more."""
    return _op(_LOAD_WORD, _AT_ARGUMENTS + 8 * index)


def _instructions(architecture: Architecture) -> Iterator[bytes]:
    def number(call: Numbers) -> int | None:
        return call.x86_64 if architecture == "x86_64" else call.aarch64

    yield _op(_LOAD_WORD, _AT_ARCHITECTURE)
    yield _op(_JUMP_EQUAL, _AUDIT_ARCH[architecture], 1, 0)
    yield _op(_RETURN, _KILL_PROCESS)
    yield _op(_LOAD_WORD, _AT_NUMBER)
    yield from (_op(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _op(_RETURN, _KILL_PROCESS))
    yield from (_op(_JUMP_AT_LEAST, syscalls.LAST_KNOWN + 1, 0, 1), _fail(errno.ENOSYS))
    for call in syscalls.REFUSED.values():
        refused = number(call)
        if refused is not None:
            yield from (_op(_JUMP_EQUAL, refused, 0, 1), _fail(errno.EPERM))
    # The C library falls back from clone3, whose flags a filter cannot see, to clone.
    yield from (_op(_JUMP_EQUAL, number(syscalls.CLONE3) or 0, 0, 1), _fail(errno.ENOSYS))
    for call, argument, test in _argument_rules():
        body = [_argument(argument), *test, _op(_RETURN, _ALLOW)]
        yield _op(_JUMP_EQUAL, number(call) or 0, 0, len(body))
        yield from body
    yield _op(_RETURN, _ALLOW)


def _argument_rules() -> Iterator[tuple[Numbers, int, list[bytes]]]:
    """Calls that depend on an argument: the call, which argument, and the test that refuses."""
    yield syscalls.CLONE, 0, [_op(_JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1), _fail(errno.EPERM)]
    for call in (syscalls.SOCKET, syscalls.SOCKETPAIR):
        yield call, 0, [_op(_JUMP_EQUAL, _AF_UNIX, 1, 0), _fail(errno.EACCES)]
    tty = [part for code in _TTY_INJECTION for part in (_op(_JUMP_EQUAL, code, 0, 1), _fail(errno.EPERM))]
    yield syscalls.IOCTL, 1, tty
    for call in (syscalls.PRLIMIT64, syscalls.SCHED_SETAFFINITY):
        yield call, 0, [_op(_JUMP_EQUAL, 0, 1, 0), _fail(errno.EPERM)]
