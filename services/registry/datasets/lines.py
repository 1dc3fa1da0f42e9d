"""Lines of a byte stream in bounded memory: a line over the limit is passed over, not read in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from services.registry.datasets.formats import has_utf8_bom


@dataclass(frozen=True)
class Line:
    """`number` from 1; `content` without its `end`, None when it is longer than the limit; `size` in bytes."""

    number: int
    content: bytes | None
    size: int
    end: bytes = b""


def lines(stream: BinaryIO, limit: int) -> Iterator[Line]:
    """Every line (ended by LF or CRLF) from the stream's start, without a byte order mark."""
    number = 0
    while raw := stream.readline(limit + 2):
        number += 1
        if number == 1 and has_utf8_bom(raw):
            raw = raw[3:]
        if len(raw) == limit + 2 and not raw.endswith(b"\n"):
            yield Line(number, None, len(raw) + _pass_over(stream))
            continue
        content = raw.removesuffix(b"\n").removesuffix(b"\r")
        end = raw[len(content) :]
        yield Line(number, content if len(content) <= limit else None, len(content), end)


def _pass_over(stream: BinaryIO) -> int:
    """Bytes up to and with the end of the line."""
    passed = 0
    while chunk := stream.readline(64 * 1024):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed
