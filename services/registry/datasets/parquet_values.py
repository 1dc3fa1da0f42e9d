"""Parquet values as JSON has them.

JSON's own types stay what they are. Times become ISO 8601 text, decimals and durations their text, bytes base64, each
with a warning; NaN, which pandas writes for an absent number, becomes null; infinities are a fault of the row.
"""
# pyarrow ships no complete types: what comes out of it is `Any` here, and typed at this module's border.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]


class NotANumber(Exception):
    """Met where a float is NaN, so that the caller can warn once."""


def converter(kind: Any, warn: Callable[[str, str], None]) -> Convert | None:
    """How values of an Arrow type become JSON; None when they are already. `warn(kind, message)`."""
    types = pa.types
    if types.is_dictionary(kind):
        return converter(kind.value_type, warn)
    if types.is_floating(kind):
        return _floats(warn)
    if types.is_temporal(kind) and not types.is_duration(kind):
        return _warned(warn, "times are stored as ISO 8601 text", lambda value: value.isoformat())
    if types.is_decimal(kind) or types.is_duration(kind) or types.is_interval(kind):
        return _warned(warn, "exact numbers and durations are stored as text", str)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _warned(
            warn, "bytes are stored as base64 text", lambda value: base64.b64encode(value).decode()
        )
    if types.is_nested(kind):
        return _nested(kind, warn)
    return None if _plain(kind) else _warned(warn, f"{kind} values are stored as text", str)


def _plain(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
        or str(kind) == "string_view"
    )


def _floats(warn: Callable[[str, str], None]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None or not math.isnan(value):
            return value
        warn("nan_as_null", "NaN is stored as null")
        return None

    return convert


def _warned(warn: Callable[[str, str], None], message: str, convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        if value is None:
            return None
        warn("type_as_text", message)
        return convert(value)

    return converted


def _nested(kind: Any, warn: Callable[[str, str], None]) -> Convert | None:
    types = pa.types
    if types.is_struct(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        inner = {member.name: converter(member.type, warn) for member in members}
        if not any(inner.values()):
            return None
        return lambda value: value and {name: _apply(inner.get(name), part) for name, part in value.items()}
    if types.is_map(kind):
        key, item = converter(kind.key_type, warn), converter(kind.item_type, warn)
        return lambda value: value and [[_apply(key, k), _apply(item, v)] for k, v in value]
    if types.is_union(kind):
        return _warned(warn, "unions are stored as text", str)
    item = converter(kind.value_type, warn)
    return (lambda value: value and [_apply(item, part) for part in value]) if item else None


def _apply(convert: Convert | None, value: Any) -> Any:
    return convert(value) if convert else value
