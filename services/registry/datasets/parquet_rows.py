"""Rows of a Parquet file, a small batch at a time.

The footer is not trusted: sizes that it states are checked against the limits, and whoever runs this on a stranger's
file does so in a process with a memory limit (`process.py`), since a column may unpack to any size.
"""
# pyarrow ships no complete types: what comes out of it is `Any` here, and typed at this module's border.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from services.registry.datasets.faults import Faults
from services.registry.datasets.limits import MIB, Limits
from services.registry.datasets.parquet_values import Convert, converter
from services.registry.datasets.rows import REQUIRED, RawRow, stored_name

BATCH_ROWS = 256
BUFFER_BYTES = MIB


def rows(stream: BinaryIO, faults: Faults, limits: Limits) -> Iterator[RawRow | None]:
    """Every row in order; a file that cannot be read is a fault, and nothing after it is read."""
    index = 0
    try:
        file: Any = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False)
        if not _footer_is_good(file, faults, limits):
            return
        converters = _converters(file.schema_arrow, faults)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            for values in batch.to_pylist():
                yield _row(values, index, converters)
                index += 1
    except (MemoryError, pa.ArrowMemoryError):
        message = "a row group unpacks to more memory than is allowed; write smaller row groups and values"
        faults.error("too_large", message, row=index or None)
    except (pa.ArrowException, OSError, ValueError) as error:
        message = f"not a readable Parquet file: {_first_line(error)}"
        faults.error("invalid_parquet", message, row=index or None)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _footer_is_good(file: Any, faults: Faults, limits: Limits) -> bool:
    before = faults.total
    names: list[str] = list(file.schema_arrow.names)
    if file.metadata.num_columns > limits.columns:
        message = f"{file.metadata.num_columns} columns; at most {limits.columns} are allowed"
        faults.error("too_many_columns", message)
        return False
    if file.metadata.num_rows > limits.rows:
        faults.error("too_large", f"{file.metadata.num_rows} rows; at most {limits.rows} are allowed")
    for group in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(group).total_byte_size
        if size > limits.row_group_bytes:
            message = (
                f"row group {group} unpacks to {size} bytes; at most {limits.row_group_bytes} are allowed, "
                "write smaller row groups"
            )
            faults.error("too_large", message)
            break
    _names_are_good(names, faults)
    return faults.total == before


def _names_are_good(names: list[str], faults: Faults) -> None:
    seen: set[str] = set()
    for name in names:
        if stored_name(name) in seen:
            faults.error("duplicate_key", "the file has the column twice", field=name[:256])
        seen.add(stored_name(name))
    for column in REQUIRED[1:]:
        if column not in seen:
            shown = ", ".join(names[:10])[:200]
            message = f"there is no column {column!r}; the file has: {shown}"
            faults.error("missing_column", message, row=0, field=column)


def _converters(schema: Any, faults: Faults) -> dict[str, Convert]:
    found: dict[str, Convert] = {}
    for field in schema:

        def warn(kind: str, message: str, name: str = field.name) -> None:
            faults.warn(kind, f"{name!r}: {message}", field=name)

        convert = converter(field.type, warn)
        if convert is not None:
            found[str(field.name)] = convert
    return found


def _row(values: dict[str, Any], index: int, converters: dict[str, Convert]) -> RawRow:
    for name, convert in converters.items():
        values[name] = convert(values[name])
    return RawRow(index, values, lambda column: str(values[column]))
