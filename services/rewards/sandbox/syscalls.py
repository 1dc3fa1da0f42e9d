"""Numbers of the system calls that sandboxed Python never needs, for x86_64 and aarch64.

From the kernel's tables arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h. A call that an
architecture lacks has None there. From 424 on, both share one number.
"""

from __future__ import annotations

from typing import NamedTuple


class Numbers(NamedTuple):
    """One call's number on each architecture."""

    x86_64: int | None
    aarch64: int | None


def _both(number: int) -> Numbers:
    return Numbers(number, number)


LAST_KNOWN = 462
"""mseal, Linux 6.10. A later call is unknown to this table and answered ENOSYS."""

CLONE = Numbers(56, 220)
CLONE3 = _both(435)
SOCKET = Numbers(41, 198)
SOCKETPAIR = Numbers(53, 199)
IOCTL = Numbers(16, 29)
PRLIMIT64 = Numbers(302, 261)
SCHED_SETAFFINITY = Numbers(203, 122)

REFUSED: dict[str, Numbers] = {
    # Looking into or steering another process.
    "ptrace": Numbers(101, 117),
    "process_vm_readv": Numbers(310, 270),
    "process_vm_writev": Numbers(311, 271),
    "process_madvise": _both(440),
    "process_mrelease": _both(448),
    "pidfd_getfd": _both(438),
    "kcmp": Numbers(312, 272),
    "setpriority": Numbers(141, 140),
    "ioprio_set": Numbers(251, 30),
    "sched_setparam": Numbers(142, 118),
    "sched_setscheduler": Numbers(144, 119),
    "sched_setattr": Numbers(314, 274),
    "migrate_pages": Numbers(256, 238),
    "move_pages": Numbers(279, 239),
    # Changing what the file system looks like, or reaching files past their path.
    "mount": Numbers(165, 40),
    "umount2": Numbers(166, 39),
    "pivot_root": Numbers(155, 41),
    "chroot": Numbers(161, 51),
    "open_tree": _both(428),
    "move_mount": _both(429),
    "fsopen": _both(430),
    "fsconfig": _both(431),
    "fsmount": _both(432),
    "fspick": _both(433),
    "mount_setattr": _both(442),
    "statmount": _both(457),
    "listmount": _both(458),
    "name_to_handle_at": Numbers(303, 264),
    "open_by_handle_at": Numbers(304, 265),
    "fanotify_init": Numbers(300, 262),
    "fanotify_mark": Numbers(301, 263),
    "quotactl": Numbers(179, 60),
    "quotactl_fd": _both(443),
    "swapon": Numbers(167, 224),
    "swapoff": Numbers(168, 225),
    "acct": Numbers(163, 89),
    "sysfs": Numbers(139, None),
    "ustat": Numbers(136, None),
    "uselib": Numbers(134, None),
    # New namespaces.
    "unshare": Numbers(272, 97),
    "setns": Numbers(308, 268),
    # Large or often broken parts of the kernel.
    "bpf": Numbers(321, 280),
    "perf_event_open": Numbers(298, 241),
    "userfaultfd": Numbers(323, 282),
    "io_uring_setup": _both(425),
    "io_uring_enter": _both(426),
    "io_uring_register": _both(427),
    "seccomp": Numbers(317, 277),
    "memfd_secret": _both(447),
    "modify_ldt": Numbers(154, None),
    "vhangup": Numbers(153, 58),
    "lookup_dcookie": Numbers(212, 18),
    "nfsservctl": Numbers(180, 42),
    "lsm_set_self_attr": _both(460),
    # Keys, and memory or queues that outlive a process.
    "keyctl": Numbers(250, 219),
    "add_key": Numbers(248, 217),
    "request_key": Numbers(249, 218),
    "shmget": Numbers(29, 194),
    "shmat": Numbers(30, 196),
    "shmctl": Numbers(31, 195),
    "semget": Numbers(64, 190),
    "semop": Numbers(65, 193),
    "semctl": Numbers(66, 191),
    "semtimedop": Numbers(220, 192),
    "msgget": Numbers(68, 186),
    "msgsnd": Numbers(69, 189),
    "msgrcv": Numbers(70, 188),
    "msgctl": Numbers(71, 187),
    "mq_open": Numbers(240, 180),
    "mq_unlink": Numbers(241, 181),
    # The machine itself.
    "kexec_load": Numbers(246, 104),
    "kexec_file_load": Numbers(320, 294),
    "reboot": Numbers(169, 142),
    "init_module": Numbers(175, 105),
    "finit_module": Numbers(313, 273),
    "delete_module": Numbers(176, 106),
    "create_module": Numbers(174, None),
    "_sysctl": Numbers(156, None),
    "iopl": Numbers(172, None),
    "ioperm": Numbers(173, None),
    "syslog": Numbers(103, 116),
    "personality": Numbers(135, 92),
    "settimeofday": Numbers(164, 170),
    "clock_settime": Numbers(227, 112),
    "adjtimex": Numbers(159, 171),
    "clock_adjtime": Numbers(305, 266),
    "sethostname": Numbers(170, 161),
    "setdomainname": Numbers(171, 162),
}
