"""Validation of a whole file, written through to the canonical form row by row.

Guaranteed: the report counts every fault, in order of row and column; the canonical form is complete exactly when the
report has no errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from libs.common.contracts.datasets import DatasetFormat, DatasetReport
from services.registry.datasets import csv_rows, jsonl
from services.registry.datasets.canonical import CanonicalWriter, encode_row
from services.registry.datasets.faults import Faults
from services.registry.datasets.formats import HEAD_BYTES, has_utf8_bom, why_not_text
from services.registry.datasets.limits import Limits
from services.registry.datasets.rows import REQUIRED, RawRow, Row, Rules

Rows = Callable[[BinaryIO, Faults, Limits], Iterator[RawRow | None]]


def _parquet_rows(source: BinaryIO, faults: Faults, limits: Limits) -> Iterator[RawRow | None]:
    # Arrow takes longer to load than most text files to read.
    from services.registry.datasets import parquet_rows

    return parquet_rows.rows(source, faults, limits)


_ROWS: dict[DatasetFormat, Rows] = {"jsonl": jsonl.rows, "csv": csv_rows.rows, "parquet": _parquet_rows}


@dataclass(frozen=True)
class Outcome:
    """The report, and the first rows with long values cut."""

    report: DatasetReport
    preview: list[dict[str, Any]]

    @property
    def valid(self) -> bool:
        """Whether the canonical form may be used."""
        return not self.report.counts


def validate(
    source: BinaryIO,
    format: DatasetFormat,
    content: BinaryIO,
    index: BinaryIO,
    limits: Limits | None = None,
) -> Outcome:
    """Check `source` (seekable) and write rows and offsets to `content` and `index` until the first fault."""
    run = _Validation(CanonicalWriter(content, index), limits or Limits())
    head = source.read(HEAD_BYTES)
    source.seek(0)
    foreign = None if format == "parquet" else why_not_text(head)
    if foreign is not None:
        run.faults.error("encoding", f"the file {foreign}")
    else:
        if has_utf8_bom(head):
            run.faults.warn("byte_order_mark", "the file starts with a byte order mark, which was dropped")
        run.read(_ROWS[format](source, run.faults, run.limits))
    return run.outcome()


class _Validation:
    def __init__(self, writer: CanonicalWriter, limits: Limits) -> None:
        self.limits = limits
        self.faults = Faults(limits.errors)
        self._writer = writer
        self._rules = Rules(self.faults, limits)
        self._rows = 0
        self._columns: dict[str, None] = dict.fromkeys(REQUIRED)
        self._preview: list[dict[str, Any]] = []

    def read(self, rows: Iterator[RawRow | None]) -> None:
        for raw in rows:
            self._rows += 1
            if raw is not None:
                self._take(raw)
            if self._rows > self.limits.rows or self._writer.size > self.limits.content_bytes:
                self._stop()
                return
        if self._rows == 0 and not self.faults.any:
            self.faults.error("no_rows", "the file has no rows; a dataset needs at least one")

    def _stop(self) -> None:
        message = (
            f"the dataset is over {self.limits.rows} rows or {self.limits.content_bytes} bytes when unpacked; "
            "split it"
        )
        self.faults.error("too_large", message, row=self._rows - 1)

    def _take(self, raw: RawRow) -> None:
        row = self._rules.canonical(raw)
        line = None if row is None else self._encoded(row, raw.index)
        if row is None or line is None or not self._known_columns(row, raw.index):
            return
        if len(self._preview) < self.limits.preview_rows:
            self._preview.append(_cut(row, self.limits))
        if not self.faults.any:
            self._writer.write(row, line)

    def _encoded(self, row: Row, index: int) -> bytes | None:
        try:
            line = encode_row(row)
        except (ValueError, TypeError) as error:
            before = self.faults.total
            for name, value in row.items():
                self._explain(name, value, index)
            if self.faults.total == before:
                self.faults.error("not_json", f"the row cannot be written as JSON: {error}"[:300], row=index)
            return None
        if len(line) > self.limits.row_bytes:
            message = f"the row has {len(line)} bytes as JSON; at most {self.limits.row_bytes} are allowed"
            self.faults.error("row_too_large", message, row=index)
            return None
        return line

    def _explain(self, name: str, value: object, index: int) -> None:
        """Report a column that cannot be encoded, in order of column."""
        try:
            encode_row({name: value})
        except UnicodeEncodeError:
            message = (
                "holds half of a surrogate pair, which is no text; was it cut in the middle of a character?"
            )
            self.faults.error("invalid_text", message, row=index, field=name)
        except ValueError:
            message = "holds a number that is not finite or has too many digits; use null or a text"
            self.faults.error("not_finite", message, row=index, field=name)
        except TypeError:
            message = f"holds a {type(value).__name__}, which JSON does not have; write it as a text"
            self.faults.error("not_json", message, row=index, field=name)

    def _known_columns(self, row: Row, index: int) -> bool:
        if row.keys() <= self._columns.keys():
            return True
        self._columns.update(dict.fromkeys(row))
        if len(self._columns) <= self.limits.columns + len(REQUIRED):
            return True
        for name in list(self._columns)[self.limits.columns + len(REQUIRED) :]:
            del self._columns[name]
        message = (
            f"the rows have more than {self.limits.columns} different columns in all; use one nested column"
        )
        self.faults.error("too_many_columns", message, row=index)
        return False

    def outcome(self) -> Outcome:
        self._writer.close()
        report = DatasetReport(
            rows=self._rows,
            columns=list(self._columns),
            errors=self.faults.errors,
            warnings=self.faults.warnings(),
            counts=dict(self.faults.counts),
            statistics=self._writer.statistics() if not self.faults.any else {},
        )
        return Outcome(report, self._preview)


def _cut(row: Row, limits: Limits) -> dict[str, Any]:
    """A row for showing: the first columns, long texts cut, long nested values as cut text."""
    cut: dict[str, Any] = {}
    for name, value in list(row.items())[: limits.preview_columns]:
        if isinstance(value, (list, dict)):
            text = json.dumps(value, ensure_ascii=False)
            cut[name] = value if len(text) <= limits.preview_text else text[: limits.preview_text] + "…"
        elif isinstance(value, str) and len(value) > limits.preview_text:
            cut[name] = value[: limits.preview_text] + "…"
        else:
            cut[name] = value
    return cut
