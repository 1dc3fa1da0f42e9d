"""Rows of a CSV file (RFC 4180): UTF-8, a header row, commas; every value is a text.

A row with more fields than the header is a fault; one with fewer has nulls at its end.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

from services.registry.datasets.faults import Faults
from services.registry.datasets.limits import Limits
from services.registry.datasets.lines import lines
from services.registry.datasets.rows import REQUIRED, RawRow, stored_name

# The module's own limit of 128 KiB a field is a setting of the whole process; ours is checked a row.
csv.field_size_limit(Limits().row_bytes)


class _Unreadable(Exception):
    """The rest of the file cannot be read: where a row ends is not known any more."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Source:
    """Feeds text lines to the parser and stops when one row, over all of its lines, gets too large."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._lines = lines(stream, limits.row_bytes)
        self._limit = limits.row_bytes
        self._row_bytes = 0

    def row_done(self) -> None:
        self._row_bytes = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._row_bytes += line.size
            if line.content is None or self._row_bytes > self._limit:
                message = (
                    f"line {line.number}: the row has more than {self._limit} bytes (is a quote missing?)"
                )
                raise _Unreadable("row_too_large", message)
            try:
                yield (line.content + line.end).decode()
            except UnicodeDecodeError as error:
                message = f"line {line.number}: byte {error.start} is not UTF-8; save the file as UTF-8"
                raise _Unreadable("encoding", message) from None


def rows(stream: BinaryIO, faults: Faults, limits: Limits) -> Iterator[RawRow | None]:
    """Every row in order; None for one that cannot be read, after its fault was reported."""
    source = _Source(stream, limits)
    # Strict: an unclosed quote must not swallow the rest of the file in silence.
    reader = csv.reader(iter(source), strict=True)
    index = 0
    try:
        header = next((fields for fields in reader if fields), None)
        source.row_done()
        if header is None or not _header_is_good(header, faults, limits):
            return
        for fields in reader:
            source.row_done()
            if fields:
                yield _row(fields, header, index, reader.line_num, faults)
                index += 1
    except _Unreadable as error:
        faults.error(error.kind, f"{error}; nothing after it was read", row=index)
        yield None
    except csv.Error as error:
        message = f"line {reader.line_num}: {error}; nothing after it was read"
        faults.error("invalid_csv", message, row=index)
        yield None


def _header_is_good(header: list[str], faults: Faults, limits: Limits) -> bool:
    before = faults.total
    if len(header) > limits.columns:
        message = f"the header has {len(header)} columns; at most {limits.columns} are allowed"
        faults.error("too_many_columns", message)
        return False
    seen: set[str] = set()
    for position, name in enumerate(header, start=1):
        if not name.strip():
            faults.error("column_name", f"column {position} of the header has no name")
        elif stored_name(name) in seen:
            faults.error(
                "duplicate_key", "the header names the column twice", field=name[: limits.column_name]
            )
        seen.add(stored_name(name))
    for column in REQUIRED[1:]:
        if column not in seen:
            shown = ", ".join(header[:10])[:200]
            message = f"there is no column {column!r}; the header has: {shown}"
            faults.error("missing_column", message, row=0, field=column)
    return faults.total == before


def _row(fields: list[str], header: list[str], index: int, line: int, faults: Faults) -> RawRow | None:
    if len(fields) > len(header):
        message = (
            f"line {line}: {len(fields)} fields, but the header has {len(header)}; quote values with commas"
        )
        faults.error("ragged_row", message, row=index)
        return None
    values = dict.fromkeys(header) | dict(zip(header, fields, strict=False))
    return RawRow(index, values, lambda column: str(values[column]))
