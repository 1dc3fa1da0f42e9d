"""Calls one reward function as the platform promises, and says what came of it.

Guaranteed here: keywords only, and no keyword that the signature does not take; a value is a finite float or there is
none; whatever the function raises ends as a report, never as a value.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

from .modules import told

CLASSIC = "solution_str"
CONVERSATION = "messages"

_BASE = {
    CONVERSATION: ("messages", "ground_truth", "metadata"),
    CLASSIC: ("solution_str", "ground_truth", "extra_info"),
}
_RESERVE = 4 << 20
"""Bytes set aside, and freed to tell of a MemoryError."""

_FURTHER = ("data_source", "solution_str", "messages", "metadata", "extra_info")


def first_parameter(function: Callable[..., Any]) -> str:
    """The name of the first parameter, by which the style of the call is chosen; empty when there is none."""
    return next(iter(inspect.signature(function).parameters), "")


def keywords_for(function: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """What of `inputs` the function is called with.

    The three of its style always; `data_source` when the signature takes it, by name or by `**kwargs`; anything
    further only when it is named. A named parameter with a default keeps it where the row has no value.
    """
    parameters = inspect.signature(function).parameters
    base = _BASE.get(first_parameter(function), _BASE[CLASSIC])
    chosen = {name: inputs[name] for name in base}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in _FURTHER:
        named = parameters.get(name)
        if name in chosen or (named is None and not (open_ended and name == "data_source")):
            continue
        if inputs.get(name) is None and named is not None and named.default is not named.empty:
            continue
        chosen[name] = inputs.get(name)
    return chosen


def report(function: Callable[..., Any], inputs: dict[str, Any], root: str) -> dict[str, Any]:
    """Call the function. `{"value": float}`, or `{"kind": ..., "error": text}`."""
    reserve = bytes(_RESERVE)  # unlike a bytearray, its pages are never touched
    try:
        result = function(**keywords_for(function, inputs))
        if inspect.isawaitable(result):
            result = asyncio.run(_settled(result))
        return _valued(result, classic=first_parameter(function) == CLASSIC)
    except MemoryError as error:
        del reserve
        return {"kind": "memory", "error": told(error.with_traceback(None), root)}
    except BaseException as error:
        kind = getattr(error, "_osmosis_kind", "exception")
        return {"kind": kind if kind == "wrong_type" else "exception", "error": told(error, root)}


async def _settled(awaitable: Any) -> Any:
    return await awaitable


def _valued(result: Any, *, classic: bool) -> dict[str, Any]:
    allowed = isinstance(result, float) if classic else isinstance(result, numbers.Real)
    if not allowed:
        return {"kind": "wrong_type", "error": f"returned {type(result).__name__}; a reward must be a float"}
    value = float(result)
    if not math.isfinite(value):
        return {"kind": "not_finite", "error": f"returned {value}; a reward must be a finite number"}
    return {"value": value}
