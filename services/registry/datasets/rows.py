"""What a row must be: the three texts, and any other columns in the order in which they came.

Required columns are found without regard to case and stored in lower case. Lenient where nothing is lost, with a
warning each: a row without a system prompt has none (`""`), a number as ground truth becomes its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from services.registry.datasets.faults import Faults
from services.registry.datasets.limits import Limits

REQUIRED = ("system_prompt", "user_prompt", "ground_truth")

Row = dict[str, Any]
Nested = list[Any] | dict[str, Any]


@dataclass(frozen=True)
class RawRow:
    """A row as the file has it. `index` from 0. `number_text(column)`: a number as it is written in the file."""

    index: int
    values: Row
    number_text: Callable[[str], str]


def stored_name(name: str) -> str:
    """The name under which a column is stored."""
    lower = name.lower()
    return lower if lower in REQUIRED else name


class Rules:
    """Turns the rows of one file into canonical ones and reports their faults."""

    def __init__(self, faults: Faults, limits: Limits) -> None:
        self._faults = faults
        self._limits = limits
        self._last_names: tuple[str, ...] | None = None
        self._last_found: dict[str, str] = {}

    def canonical(self, raw: RawRow) -> Row | None:
        """The row with the required columns first, or None after its faults were reported."""
        faults, before = self._faults, self._faults.total
        found = self._columns(raw)
        row: Row = {}
        for column in REQUIRED:
            name = found.get(column)
            row[column] = _absent(raw, column, faults) if name is None else _text(raw, name, column, faults)
        for column, name in found.items():
            if column in row:
                continue
            value: Any = raw.values[name]
            if isinstance(value, (list, dict)) and _deeper_than(cast("Nested", value), self._limits.depth):
                message = f"{column!r} is nested more than {self._limits.depth} deep; make it flatter"
                faults.error("too_deep", message, row=raw.index, field=column)
            row[column] = value
        return row if faults.total == before else None

    def _columns(self, raw: RawRow) -> dict[str, str]:
        """Names in the file by stored name. Rows mostly look like the one before."""
        names = tuple(raw.values)
        if names == self._last_names:
            return self._last_found
        before = self._faults.total
        found = _renamed(raw, self._faults, self._limits)
        if self._faults.total == before:
            self._last_names, self._last_found = names, found
        return found


def _renamed(raw: RawRow, faults: Faults, limits: Limits) -> dict[str, str]:
    """Names in the file by stored name, in order of appearance."""
    if len(raw.values) > limits.columns:
        message = f"{len(raw.values)} columns; at most {limits.columns} are allowed"
        faults.error("too_many_columns", message, row=raw.index)
        return {name: name for name in raw.values if name in REQUIRED}
    names: dict[str, str] = {}
    for name in raw.values:
        stored = stored_name(name)
        if len(name) > limits.column_name:
            message = f"a column name has {len(name)} characters; at most {limits.column_name} are allowed"
            faults.error("column_name", message, row=raw.index, field=name[:64] + "…")
        elif stored in names:
            message = f"{names[stored]!r} and {name!r} are the same column: names are compared without case"
            faults.error("duplicate_key", message, row=raw.index, field=stored)
        else:
            names[stored] = name
    return names


def _absent(raw: RawRow, column: str, faults: Faults) -> str:
    if column == "system_prompt":
        _warn_no_system_prompt(raw, faults)
    else:
        faults.error("missing_column", f"the row has no {column!r}", row=raw.index, field=column)
    return ""


def _text(raw: RawRow, name: str, column: str, faults: Faults) -> str:
    value: object = raw.values[name]
    if isinstance(value, str) and value.strip():
        return value
    if column == "system_prompt" and (value is None or isinstance(value, str)):
        _warn_no_system_prompt(raw, faults)
        return ""
    if column == "ground_truth" and isinstance(value, (int, float)) and not isinstance(value, bool):
        message = "numbers were taken as their text; other tools refuse them, write them in quotes"
        faults.warn("number_as_text", message, row=raw.index, field=column)
        return raw.number_text(name)
    if value is None or isinstance(value, str):
        faults.error("empty", f"{column!r} is empty; it needs a text", row=raw.index, field=column)
    else:
        message = f"{column!r} is {_kind(value)}; it must be a text"
        faults.error("not_text", message, row=raw.index, field=column)
    return ""


def _warn_no_system_prompt(raw: RawRow, faults: Faults) -> None:
    message = "no system prompt, so no system message is sent; other tools refuse such rows"
    faults.warn("no_system_prompt", message, row=raw.index, field="system_prompt")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"a {type(value).__name__}"


def _deeper_than(value: Nested, limit: int) -> bool:
    level: list[Nested] = [value]
    for _ in range(limit):
        level = [item for part in level for item in _parts(part)]
        if not level:
            return False
    return True


def _parts(value: Nested) -> list[Nested]:
    """The lists and objects inside a list or object."""
    items = value.values() if isinstance(value, dict) else value
    return [cast("Nested", item) for item in items if isinstance(item, (list, dict))]
