"""Ways out of a sandbox, each a reward function that tries one. This file runs inside, as user code.

A function returns 1.0 when it got out, and says how; it returns 0.0 or raises when it was refused.
"""
# ruff: noqa: SIM115 - what is opened here must not be closed politely

import ctypes
import json
import os
import pickle
import signal
import socket
import struct
import time

libc = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"


def _system(x86_64, aarch64, *arguments):
    """A system call without a function in the C library."""
    return libc.syscall(ctypes.c_long(aarch64 if ARM else x86_64), *arguments)


def _attempt(function):
    """A reward function of the plainest form."""

    def call(solution_str, ground_truth, extra_info):
        return float(bool(function()))

    call.__name__ = function.__name__
    globals()[function.__name__] = call
    return call


def fine(solution_str, ground_truth, extra_info):
    return 0.5


def _reads(path):
    with open(path, "rb") as file:
        print(path, file.read(64))
    return True


def _any(paths):
    for path in paths:
        try:
            return _reads(path)
        except OSError:
            continue
    return False


@_attempt
def read_the_hosts_passwords():
    return _any(["/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/hosts", "/proc/1/root/etc/passwd"])


@_attempt
def read_the_services_environment():
    return _any(
        f"/proc/{pid}/environ" for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()
    )


@_attempt
def find_a_secret_in_the_own_environment():
    return any(word in name for name in os.environ for word in ("OSMOSIS", "SECRET", "TOKEN", "AWS"))


@_attempt
def see_processes_of_the_host():
    return len([pid for pid in os.listdir("/proc") if pid.isdigit()]) > 3


@_attempt
def read_the_services_code():
    import sys

    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "services")) or os.path.isdir(
            os.path.join(folder, "sqlalchemy")
        ):
            return True
    return False


@_attempt
def walk_out_of_the_root():
    return bool(set(os.listdir("/../../..")) & {"home", "var", "boot", "srv", "mnt"})


@_attempt
def leave_by_an_inherited_directory():
    for name in os.listdir("/proc/self/fd"):
        try:
            if set(os.listdir(f"/proc/self/fd/{name}/../..")) & {"home", "var", "boot"}:
                return True
        except OSError:
            continue
    return False


@_attempt
def connect_to_the_machine():
    for port in (5672, 5432, 8700, 22):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            continue
    return False


@_attempt
def ask_the_metadata_address():
    socket.create_connection(("169.254.169.254", 80), timeout=1)
    return True


@_attempt
def resolve_a_name():
    return bool(socket.getaddrinfo("example.com", 80))


@_attempt
def open_a_raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return True


@_attempt
def open_a_netlink_socket():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    return True


@_attempt
def open_a_vsock():
    socket.socket(40, socket.SOCK_STREAM)
    return True


@_attempt
def use_the_kernels_crypto_socket():
    socket.socket(38, socket.SOCK_SEQPACKET)
    return True


@_attempt
def reach_an_abstract_socket():
    with open("/proc/net/unix") as file:
        names = [line.split()[-1] for line in file if "@" in line]
    for name in names:
        try:
            socket.socket(socket.AF_UNIX).connect("\0" + name[1:])
            return True
        except OSError:
            continue
    return False


@_attempt
def write_into_the_project():
    open("reward_fn/new.py", "w").write("x")
    return True


@_attempt
def write_at_the_root():
    for path in ("/x", "/usr/x", "/dev/x", "/osmosis/x", "/project/x", "/etc/x", "/lib/x"):
        try:
            open(path, "w")
            return True
        except OSError:
            continue
    return False


@_attempt
def write_kernel_settings():
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"):
        try:
            open(path, "w").write("x")
            return True
        except OSError:
            continue
    return False


@_attempt
def run_a_program_from_tmp_with_more_rights():
    open("/tmp/suid", "wb").write(b"#!/bin/sh\n")
    os.chmod("/tmp/suid", 0o6755)
    pid = os.fork()
    if pid == 0:
        try:
            os.execv("/tmp/suid", ["suid"])
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


@_attempt
def become_root():
    os.setresuid(0, 0, 0)
    return True


@_attempt
def gain_a_capability():
    header = struct.pack("II", 0x20080522, 0)
    data = struct.pack("IIIIII", *[0xFFFFFFFF] * 6)
    return libc.capset(header, data) == 0


@_attempt
def make_a_user_namespace():
    return libc.unshare(0x10000000) == 0


@_attempt
def make_a_user_namespace_by_clone():
    result = _system(56, 220, ctypes.c_long(0x10000000 | 17), None, None, None, None)
    if result == 0:
        os._exit(0)
    return result > 0


@_attempt
def enter_the_namespace_of_init():
    return libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0


@_attempt
def mount_something():
    return libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0


@_attempt
def unmount_something():
    return libc.umount2(b"/proc", 2) == 0 or libc.umount2(b"/project", 2) == 0


@_attempt
def change_the_root():
    return libc.chroot(b"/tmp") == 0


@_attempt
def make_a_device():
    os.mknod("/tmp/disk", 0o660 | 0o060000, os.makedev(254, 0))
    return True


@_attempt
def open_a_file_by_its_handle():
    return libc.open_by_handle_at(-100, b"\0" * 64, 0) >= 0


@_attempt
def trace_the_template():
    return libc.ptrace(16, os.getppid(), None, None) == 0


@_attempt
def write_into_the_templates_memory():
    open(f"/proc/{os.getppid()}/mem", "r+b")
    return True


@_attempt
def read_the_templates_memory():
    buffer = ctypes.create_string_buffer(16)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    return libc.process_vm_readv(os.getppid(), vector, 1, vector, 1, 0) > 0


@_attempt
def take_the_templates_socket():
    pidfd = os.pidfd_open(os.getppid())
    return any(_system(438, 438, pidfd, fd, 0) >= 0 for fd in range(3, 32))


@_attempt
def open_the_templates_files():
    return bool(os.listdir(f"/proc/{os.getppid()}/fd"))


@_attempt
def lower_the_templates_limits():
    import resource

    resource.prlimit(os.getppid(), resource.RLIMIT_AS, (1, 1))
    return True


@_attempt
def raise_the_own_limits():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


@_attempt
def load_a_kernel_program():
    return _system(321, 280, 0, None, 0) >= 0 or ctypes.get_errno() not in (1, 38)


@_attempt
def use_the_keyring():
    return _system(248, 217, b"user", b"n", b"v", 1, -3) >= 0


@_attempt
def use_io_uring():
    return _system(425, 425, 1, b"\0" * 120) >= 0 or ctypes.get_errno() not in (1, 38)


@_attempt
def watch_page_faults():
    return _system(323, 282, 0) >= 0


@_attempt
def leave_shared_memory_behind():
    return libc.shmget(77, 4096, 0o1666) >= 0


@_attempt
def set_the_clock():
    time.clock_settime(time.CLOCK_REALTIME, 0)
    return True


@_attempt
def push_keys_into_a_terminal():
    import fcntl

    for fd in (0, 1, 2):
        try:
            fcntl.ioctl(fd, 0x5412, b"x")
            return True
        except OSError:
            continue
    return False


def _sockets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)
        except OSError:
            continue


@_attempt
def forge_a_verdict_on_the_services_socket():
    message = json.dumps({"call": 1, "answer": '{"value": 1.0}', "status": 0, "retire": False}).encode()
    sent = False
    for fd in _sockets():
        os.write(fd, struct.pack(">I", len(message)) + message)
        sent = True
    return sent


class _Bomb:
    def __reduce__(self):
        return os._exit, (0,)


def write_a_pickle_into_every_pipe(solution_str, ground_truth, extra_info):
    for fd in range(3, 64):
        try:
            os.write(fd, pickle.dumps(_Bomb()))
        except OSError:
            continue
    return 0.0


def write_deep_json_into_every_pipe(solution_str, ground_truth, extra_info):
    for fd in range(3, 64):
        try:
            os.write(fd, b"[" * 30_000)
        except OSError:
            continue
    return 0.0


def stop_the_template(solution_str, ground_truth, extra_info):
    os.kill(os.getppid(), signal.SIGSTOP)
    return 1.0


def kill_init(solution_str, ground_truth, extra_info):
    os.kill(1, signal.SIGKILL)
    return 0.0
