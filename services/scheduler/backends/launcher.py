"""Becomes the command it is given, after tying its life to its parent's: `launcher PARENT_PID COMMAND…`.

Linux clears the parent-death signal at a fork and keeps it at an exec, so it has to be set between the two.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Set the signal, check that the parent did not die before, become the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"the parent-death signal cannot be set: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the scheduler that started this attempt is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
