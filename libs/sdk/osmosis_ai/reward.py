"""`@osmosis_reward`: marks a reward function, checks its signature at import and its result at each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from osmosis_ai import signature as sig

P = ParamSpec("P")
R = TypeVar("R")

_EXAMPLE = "(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs)"
# Bare `dict` on purpose: `dict[str, Any]` is refused, as the reference client refuses it.
_EXTRA_INFO: tuple[Any, ...] = (dict, dict | None)  # pyright: ignore[reportMissingTypeArgument]


def osmosis_reward(function: Callable[P, R]) -> Callable[P, R]:
    """Mark `function` as a reward function.

    A function whose first parameter is `solution_str` must look like
    `(solution_str: str, ground_truth: str, extra_info: dict = None, ...)` and must return a `float`; any other
    function is called and read as it is. `data_source` is dropped from a call when the function cannot take it.
    `async def` works.

    Raises TypeError at decoration when a rule of the signature is broken. The decorated function raises
    ResultTypeError (a TypeError) when it is checked and its result is not a `float`.
    """
    signature = sig.signature_of(function)
    if signature.style == "classic":
        _check(signature)
    marker = sig.Marker("reward", signature.style)
    wrap = _wrap_async if inspect.iscoroutinefunction(function) else _wrap
    wrapper = wrap(function, signature)
    setattr(wrapper, sig.MARKER, marker)
    return cast("Callable[P, R]", wrapper)


def _check(signature: sig.Signature) -> None:
    sig.must_have_three(signature, _EXAMPLE)
    for index, name in enumerate(("solution_str", "ground_truth")):
        parameter = sig.must_be_named(signature, index, name)
        if parameter.annotation is not str:
            raise sig.refuse(signature, name, sig.shown(parameter.annotation), f"'{name}: str'")
    extra = sig.must_be_named(signature, 2, "extra_info")
    if extra.annotation not in _EXTRA_INFO:
        raise sig.refuse(signature, "extra_info", sig.shown(extra.annotation), "'extra_info: dict = None'")
    if extra.default is inspect.Parameter.empty:
        raise sig.refuse(signature, "extra_info", "no default", "'extra_info: dict = None'")


def _finish(signature: sig.Signature, result: Any) -> Any:
    return sig.must_return_float(signature, result) if signature.style == "classic" else result


def _wrap(function: Callable[..., Any], signature: sig.Signature) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        return _finish(signature, function(*args, **signature.without_foreign_source(keywords)))

    return call


def _wrap_async(function: Callable[..., Any], signature: sig.Signature) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **keywords: Any) -> Any:
        return _finish(signature, await function(*args, **signature.without_foreign_source(keywords)))

    return call
