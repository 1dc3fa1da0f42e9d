"""The one form of a dataset: JSONL, one object a row, required columns first, and the byte offset of every row.

The index holds little-endian uint64 offsets, rows + 1 of them: row i is bytes offsets[i]..offsets[i + 1] of the
content, so a reader fetches one row without the file.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from dataclasses import dataclass
from typing import Any, BinaryIO

from services.registry.datasets.rows import REQUIRED, Row

OFFSET_BYTES = 8
OFFSETS_AT_ONCE = 8192

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


@dataclass
class Lengths:
    """Characters of one column over the rows written."""

    total: int = 0
    shortest: int = 0
    longest: int = 0

    def add(self, length: int, *, first: bool) -> None:
        """One more row."""
        self.total += length
        self.shortest = length if first else min(self.shortest, length)
        self.longest = max(self.longest, length)


def encode_row(row: Row) -> bytes:
    """A row's line, with its line end.

    Raises:
        ValueError: a number that is not finite, or text that is not Unicode (UnicodeEncodeError).
        TypeError: a value that JSON does not have.
    """
    return _encode(row).encode() + b"\n"


class CanonicalWriter:
    """Writes rows to `content` and their offsets to `index`, and keeps the statistics."""

    def __init__(self, content: BinaryIO, index: BinaryIO) -> None:
        self._content = content
        self._index = index
        self.rows = 0
        self.size = 0
        self._lengths = {column: Lengths() for column in REQUIRED}
        self._offsets = array("Q", [0])

    def write(self, row: Row, line: bytes) -> None:
        """Append a row and its line, as `encode_row` made it."""
        for column, lengths in self._lengths.items():
            lengths.add(len(row[column]), first=self.rows == 0)
        self._content.write(line)
        self.size += len(line)
        self.rows += 1
        self._offsets.append(self.size)
        if len(self._offsets) >= OFFSETS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write the rest of the index."""
        self._flush()

    def _flush(self) -> None:
        if sys.byteorder == "big":
            self._offsets.byteswap()
        self._index.write(self._offsets.tobytes())
        del self._offsets[:]

    def statistics(self) -> dict[str, Any]:
        """`bytes` of the canonical form and `characters` of the three texts: total, min, max, mean."""
        return {
            "bytes": self.size,
            "characters": {
                column: {
                    "total": lengths.total,
                    "min": lengths.shortest,
                    "max": lengths.longest,
                    "mean": round(lengths.total / self.rows, 1) if self.rows else 0.0,
                }
                for column, lengths in self._lengths.items()
            },
        }


class RowReader:
    """Reads single rows of a canonical dataset by the index alone."""

    def __init__(self, content: BinaryIO, index: BinaryIO) -> None:
        self._content = content
        self._index = index
        self.rows = index.seek(0, 2) // OFFSET_BYTES - 1

    def row(self, number: int) -> Row:
        """The row with that index, from 0.

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= number < self.rows:
            raise IndexError(f"row {number} of {self.rows}")
        self._index.seek(number * OFFSET_BYTES)
        start, stop = struct.unpack("<QQ", self._index.read(2 * OFFSET_BYTES))
        self._content.seek(start)
        return json.loads(self._content.read(stop - start))
