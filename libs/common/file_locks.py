"""Locks between the processes of one machine, as files: held by one process, and free the moment that it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(path: Path) -> Generator[bool]:
    """Whether the lock is ours inside the block; False at once when another process holds it.

    `flock` belongs to the open file: it goes with the process, whatever ends it, and leaves nothing to clean up.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
