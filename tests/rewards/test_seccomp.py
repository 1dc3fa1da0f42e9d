"""The filter decides as its table says, on both architectures: the program is run here instruction by instruction."""

from __future__ import annotations

import errno
import struct
from typing import get_args

import pytest

from services.rewards.sandbox import syscalls
from services.rewards.sandbox.seccomp import NEW_NAMESPACES, Architecture, program

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
BOTH = pytest.mark.parametrize("architecture", get_args(Architecture))


def decide(code: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would return: an interpreter of the classic BPF that the filter uses."""
    values = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0, *values)
    instructions = list(struct.iter_unpack("<HBBI", code))
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = instructions[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return value
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


def number_of(call: syscalls.Numbers, architecture: Architecture) -> int:
    number = call.x86_64 if architecture == "x86_64" else call.aarch64
    assert number is not None
    return number


def denied(number: int) -> int:
    return 0x00050000 | number


@BOTH
def test_every_call_of_the_table_is_refused_and_every_other_known_one_passes(
    architecture: Architecture,
) -> None:
    code = program(architecture)
    at = syscalls.Numbers._fields.index(architecture)
    refused = {call[at] for call in syscalls.REFUSED.values()} - {None}
    special = {call[at] for call in (syscalls.CLONE3, syscalls.SOCKET, syscalls.SOCKETPAIR)}
    for number in range(syscalls.LAST_KNOWN + 1):
        if number not in special:
            expected = denied(errno.EPERM) if number in refused else ALLOW
            assert decide(code, AUDIT[architecture], number) == expected, number


@BOTH
def test_newer_calls_do_not_exist_and_clone3_falls_back(architecture: Architecture) -> None:
    code = program(architecture)
    for number in (syscalls.LAST_KNOWN + 1, 600, number_of(syscalls.CLONE3, architecture)):
        assert decide(code, AUDIT[architecture], number) == denied(errno.ENOSYS)


@BOTH
def test_calls_of_another_architecture_and_the_x32_table_kill(architecture: Architecture) -> None:
    code = program(architecture)
    other = next(value for name, value in AUDIT.items() if name != architecture)
    assert decide(code, other, 0) == KILL
    assert decide(code, 0x40000003, 0) == KILL
    assert decide(code, AUDIT[architecture], 0x40000000) == KILL


@BOTH
def test_a_process_may_be_made_but_not_with_new_namespaces(architecture: Architecture) -> None:
    code, clone = program(architecture), number_of(syscalls.CLONE, architecture)
    assert decide(code, AUDIT[architecture], clone, (0x01200011,)) == ALLOW
    for bit in (bit for bit in range(32) if NEW_NAMESPACES >> bit & 1):
        assert decide(code, AUDIT[architecture], clone, (1 << bit | 17,)) == denied(errno.EPERM)


@BOTH
def test_sockets_are_unix_sockets(architecture: Architecture) -> None:
    code = program(architecture)
    for call in (syscalls.SOCKET, syscalls.SOCKETPAIR):
        number = number_of(call, architecture)
        assert decide(code, AUDIT[architecture], number, (1,)) == ALLOW
        for family in (0, 2, 10, 16, 17, 38, 40):
            assert decide(code, AUDIT[architecture], number, (family,)) == denied(errno.EACCES)


@BOTH
def test_only_own_limits_may_be_changed_and_no_keys_pressed(architecture: Architecture) -> None:
    code = program(architecture)
    limits, ioctl = number_of(syscalls.PRLIMIT64, architecture), number_of(syscalls.IOCTL, architecture)
    assert decide(code, AUDIT[architecture], limits, (0,)) == ALLOW
    assert decide(code, AUDIT[architecture], limits, (2,)) == denied(errno.EPERM)
    assert decide(code, AUDIT[architecture], ioctl, (0, 0x5401)) == ALLOW
    assert decide(code, AUDIT[architecture], ioctl, (0, 0x5412)) == denied(errno.EPERM)
