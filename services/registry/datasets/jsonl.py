"""Rows of a JSONL file: one JSON object a line (RFC 8259), blank lines skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from services.registry.datasets.faults import Faults
from services.registry.datasets.limits import Limits
from services.registry.datasets.lines import Line, lines
from services.registry.datasets.rows import RawRow, Row


class _DuplicateKey(ValueError):
    """An object that names a key twice: readers disagree on which one counts."""


class _NotFinite(ValueError):
    """`NaN`, `Infinity`: words that JSON does not have."""


def _object(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKey(next(name for name in names if names.count(name) > 1))
    return found


def _constant(word: str) -> Any:
    raise _NotFinite(word)


_decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode
_decode_as_written = json.JSONDecoder(parse_int=str, parse_float=str).decode


def rows(stream: BinaryIO, faults: Faults, limits: Limits) -> Iterator[RawRow | None]:
    """Every row in order; None for one that cannot be read, after its fault was reported."""
    index = 0
    for line in lines(stream, limits.row_bytes):
        if line.content is not None and not line.content.strip():
            continue
        yield _row(line, index, faults, limits)
        index += 1


def _row(line: Line, index: int, faults: Faults, limits: Limits) -> RawRow | None:
    fault = _Fault(faults, index, line.number)
    if line.content is None:
        return fault("row_too_large", f"{line.size} bytes long; a row has at most {limits.row_bytes}")
    try:
        text = line.content.decode()
        value = _decode(text)
    except UnicodeDecodeError as error:
        return fault("encoding", f"byte {error.start} is not UTF-8; save the file as UTF-8")
    except _DuplicateKey as error:
        return fault("duplicate_key", f"the key {_shown(error)} occurs twice in one object", field=str(error))
    except _NotFinite as error:
        return fault("not_finite", f"{error} is no JSON; use null or a text")
    except json.JSONDecodeError as error:
        return fault("invalid_json", f"column {error.colno}: {error.msg}; one JSON object is expected a line")
    except RecursionError:
        return fault("too_deep", f"nested more than {limits.depth} deep; make it flatter")
    except ValueError:
        return fault("invalid_json", "a number has too many digits; write it as a text")
    if not isinstance(value, dict):
        return fault("not_an_object", 'not a JSON object; write {"user_prompt": …} on each line')
    return RawRow(index, cast("Row", value), lambda column: str(_decode_as_written(text)[column]))


def _shown(error: Exception) -> str:
    text = str(error)
    return repr(text if len(text) <= 64 else text[:64] + "…")


class _Fault:
    """Reports a fault of one line; the result says that there is no row."""

    def __init__(self, faults: Faults, row: int, line: int) -> None:
        self._faults, self._row, self._line = faults, row, line

    def __call__(self, kind: str, message: str, *, field: str | None = None) -> None:
        self._faults.error(kind, f"line {self._line}: {message}", row=self._row, field=field)
