"""`@osmosis_rubric`: marks a rubric function, checks its signature at import, its arguments and result at each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from osmosis_ai import signature as sig

P = ParamSpec("P")
R = TypeVar("R")

_EXAMPLE = "(solution_str: str, ground_truth: str | None, extra_info: dict, **kwargs)"
_ALLOWED: dict[str, tuple[Any, ...]] = {"solution_str": (str,), "ground_truth": (str, str | None)}
_WRITE = {"solution_str": "'solution_str: str'", "ground_truth": "'ground_truth: str | None'"}


def osmosis_rubric(function: Callable[P, R]) -> Callable[P, R]:
    """Mark `function` as a rubric.

    A function whose first parameter is `solution_str` must look like
    `(solution_str: str, ground_truth: str | None, extra_info, ...)`, the first two without defaults. Its calls must
    give a text, a text or None, and an `extra_info` of any value, by keyword or by place; its result must be a
    `float`. Any other function is left as it is. `async def` works.

    Raises TypeError at decoration when a rule of the signature is broken. The decorated function raises TypeError
    for a wrong argument and ResultTypeError for a wrong result.
    """
    signature = sig.signature_of(function)
    if signature.style == "classic":
        _check(signature)
    marker = sig.Marker("rubric", signature.style)
    wrap = _wrap_async if inspect.iscoroutinefunction(function) else _wrap
    wrapper = wrap(function, signature)
    setattr(wrapper, sig.MARKER, marker)
    return cast("Callable[P, R]", wrapper)


def _check(signature: sig.Signature) -> None:
    sig.must_have_three(signature, _EXAMPLE)
    for index, name in enumerate(("solution_str", "ground_truth")):
        parameter = sig.must_be_named(signature, index, name)
        if parameter.annotation not in _ALLOWED[name]:
            raise sig.refuse(signature, name, sig.shown(parameter.annotation), _WRITE[name])
        if parameter.default is not inspect.Parameter.empty:
            raise sig.refuse(signature, name, "a default", f"{_WRITE[name]} without one")
    sig.must_be_named(signature, 2, "extra_info")


def _prepare(signature: sig.Signature, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    allowed = signature.without_foreign_source(keywords)
    if signature.style == "classic":
        _check_arguments(signature, signature.bindable.bind_partial(*args, **allowed).arguments)
    return allowed


def _check_arguments(signature: sig.Signature, given: dict[str, Any]) -> None:
    if not isinstance(given.get("solution_str"), str):
        raise TypeError(f"{signature.name}: 'solution_str' must be given as text")
    if "ground_truth" not in given or not isinstance(given["ground_truth"], str | None):
        raise TypeError(f"{signature.name}: 'ground_truth' must be given, as text or None")
    if "extra_info" not in given:
        raise TypeError(f"{signature.name}: 'extra_info' must be given")


def _finish(signature: sig.Signature, result: Any) -> Any:
    return sig.must_return_float(signature, result) if signature.style == "classic" else result


def _wrap(function: Callable[..., Any], signature: sig.Signature) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        return _finish(signature, function(*args, **_prepare(signature, args, keywords)))

    return call


def _wrap_async(function: Callable[..., Any], signature: sig.Signature) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **keywords: Any) -> Any:
        return _finish(signature, await function(*args, **_prepare(signature, args, keywords)))

    return call
