"""A commit's tree as one deterministic tar: the same commit gives the same bytes, and so the same SHA-256.

Entries are sorted by path; times, owners and all permissions but "executable" are dropped.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Protocol

from services.registry.gitsync.tree import Entry


class _Out(Protocol):
    def write(self, data: bytes, /) -> int: ...


class _Hashing(io.RawIOBase):
    """Passes bytes on and keeps their digest and number."""

    def __init__(self, out: _Out) -> None:
        self._out = out
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - bytes are all it gets
        self.digest.update(data)
        self.size += len(data)
        return self._out.write(data)


class Archive:
    """A tar being written; entries must come sorted by path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._hashing = _Hashing(self._file)
        self._tar = tarfile.open(mode="w|", fileobj=self._hashing, format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by close()

    def add(self, entry: Entry, content: bytes) -> None:
        """Append a file, or a link whose target is `content`."""
        info = tarfile.TarInfo(entry.path)
        info.mode = 0o755 if entry.kind == "executable" else 0o644
        if entry.kind == "link":
            info.type = tarfile.SYMTYPE
            info.linkname = content.decode()
            self._tar.addfile(info)
            return
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))

    def close(self) -> None:
        """Finish the file; digest and size are complete after it."""
        self._tar.close()
        self._file.close()

    @property
    def sha256(self) -> str:
        """Hex digest of the file."""
        return self._hashing.digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._hashing.size
