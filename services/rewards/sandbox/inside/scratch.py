"""The writable folders of a sandbox, and how they look the same to every call.

Guaranteed here: what a call adds is removed after it; when it changed or removed something that was there before
the first call, that is noticed (a change of a file moves its ctime, which no program can set back).
"""

from __future__ import annotations

import os
import shutil
import stat

FOLDERS = ("/tmp", "/dev/shm")

Mark = tuple[int, int, int]


class Scratch:
    """Remembers the folders as they are now."""

    def __init__(self, folders: tuple[str, ...] = FOLDERS) -> None:
        self._folders = folders
        self._before = _marks(folders)

    def restore(self) -> bool:
        """Remove what was added. False when something that was there before is not as it was."""
        if not self._before and all(_is_empty(folder) for folder in self._folders):
            return True
        now = _marks(self._folders)
        for path in sorted(now.keys() - self._before.keys()):
            _remove(path)
        left = _marks(self._folders)
        return left.keys() == self._before.keys() and all(
            left[path] == mark for path, mark in self._before.items() if not _is_folder(path)
        )


def _is_empty(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def _is_folder(path: str) -> bool:
    # A folder's ctime moves when an entry is added and removed again: that is no change.
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _marks(folders: tuple[str, ...]) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        device = os.lstat(folder).st_dev
        try:
            entries = list(os.scandir(folder))
        except PermissionError:
            os.chmod(folder, 0o700)
            entries = list(os.scandir(folder))
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            found[entry.path] = (status.st_ino, status.st_ctime_ns, status.st_size)
            # Another device is something read-only that was mounted here.
            if entry.is_dir(follow_symlinks=False) and status.st_dev == device:
                waiting.append(entry.path)
    return found


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return
