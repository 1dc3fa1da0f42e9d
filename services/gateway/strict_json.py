"""What JSON a body may be (RFC 8259, with the interoperable choices of RFC 7493, I-JSON).

Refused, since peers would read them differently or not at all: other encodings than UTF-8, a byte order mark, duplicate
names, NaN and infinities (also by overflow: 1e400), lone surrogates, NUL in texts, and nesting without end.
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

from libs.common.errors import FieldError, Invalid


def check_json(body: bytes) -> None:
    """Refuse a body that is not strict JSON.

    Raises:
        Invalid: with the reason.
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text, parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_without_duplicates
        )
    except UnicodeDecodeError as error:
        raise _refused(f"not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _refused(f"not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _refused("nested too deeply") from None
    except ValueError as error:
        raise _refused(str(error)) from None
    _check_texts(value)


def _refused(reason: str) -> Invalid:
    return Invalid(f"the body is {reason}", fields=[FieldError("", reason)])


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"not JSON that can be kept: the number {text[:40]} is out of range")
    return number


def _no_constant(name: str) -> float:
    raise ValueError(f"not JSON: {name} is no number")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("not JSON that reads the same everywhere: an object has the same name twice")
    return value


def _check_texts(value: object) -> None:
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, dict):
            pairs = cast("dict[str, object]", item)
            waiting.extend(pairs.keys())
            waiting.extend(pairs.values())
        elif isinstance(item, list):
            waiting.extend(cast("list[object]", item))


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _refused("not storable: a text holds the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused("not storable: a text holds half of a surrogate pair") from None
