"""Standard streams whose text and bytes go different ways, for a server that speaks MCP over stdio.

Guaranteed here: `print` and `sys.stdin.readline` of a tool never touch the protocol; a server that takes the binary
buffer, as every version of the protocol's stdio transport does, gets the protocol.
"""

from __future__ import annotations

import io
import os
from typing import BinaryIO, TextIO


class _Aside(io.TextIOWrapper):
    """Text goes to the process's own descriptor; the bytes below are those of the protocol."""

    def __init__(self, fd: int, mode: str, protocol: BinaryIO) -> None:
        raw = io.FileIO(fd, mode, closefd=False)
        own = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        super().__init__(own, "utf-8", "backslashreplace", line_buffering=True)
        self._protocol = protocol

    @property
    def buffer(self) -> BinaryIO:  # pyright: ignore[reportIncompatibleMethodOverride]  # a property there too
        return self._protocol


def standard_streams(receive_fd: int, send_fd: int) -> tuple[TextIO, TextIO]:
    """What to put in place of `sys.stdin` and `sys.stdout`; both descriptors are theirs from then on."""
    return _Aside(0, "r", os.fdopen(receive_fd, "rb")), _Aside(1, "w", os.fdopen(send_fd, "wb"))
