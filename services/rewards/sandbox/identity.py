"""Who a sandbox runs as: never the service's own user when that is root.

The kernel exempts user 0 from the limit on processes, so a service that runs as root keeps one user namespace in
which root stands beside a range of users that exist nowhere else; each sandbox takes one of them, and so can't touch
another's processes or files. A service that runs as an ordinary user needs none of that: bubblewrap makes a
namespace of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FIRST_INSIDE = 1000
FIRST_OUTSIDE = 61184
"""First of the users that systemd's documentation sets apart as never given to a person or a package."""
COUNT = 4096

_HOLDER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) != 0:
    sys.exit(f"unshare(CLONE_NEWUSER): errno {ctypes.get_errno()}")
print("ready", flush=True)
sys.stdin.read()
"""


class UserRange:
    """A user namespace that holds root and `COUNT` nameless users, and who of them is in use."""

    def __init__(self) -> None:
        self.namespace_fd = _open_namespace()
        self._free = list(range(FIRST_INSIDE + COUNT - 1, FIRST_INSIDE - 1, -1))

    def take(self) -> int:
        """A user, by its number inside, that no other sandbox of this service has."""
        return self._free.pop()

    def give_back(self, user: int) -> None:
        """The sandbox is gone: its user may serve again, after all others did."""
        self._free.insert(0, user)

    def close(self) -> None:
        """Let the namespace go; sandboxes in it live on until they end."""
        if self.namespace_fd >= 0:
            os.close(self.namespace_fd)
            self.namespace_fd = -1


def _open_namespace() -> int:
    """Make the namespace and return a descriptor that keeps it. Raises RuntimeError with the kernel's reason."""
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != b"ready":
            _, reason = holder.communicate()
            raise RuntimeError(f"no user namespace: {reason.decode(errors='replace').strip()}")
        table = f"0 0 1\n{FIRST_INSIDE} {FIRST_OUTSIDE} {COUNT}\n"
        process = Path("/proc") / str(holder.pid)
        (process / "uid_map").write_text(table)
        (process / "gid_map").write_text(table)
        return os.open(process / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeError(f"no users of their own for sandboxes: {error}") from error
    finally:
        holder.kill()
        holder.communicate()
