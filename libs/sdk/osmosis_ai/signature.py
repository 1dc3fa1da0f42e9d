"""How a decorated function looks: its style, its annotations, and what it may be called with.

Guaranteed here: annotations are compared after they are resolved, so `from __future__ import annotations` changes
nothing; an annotation that cannot be resolved is an error that shows its text.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MARKER = "_osmosis_marker"
FIRST_OF_CLASSIC = "solution_str"

Kind = Literal["reward", "rubric"]
Style = Literal["classic", "free"]


class ResultTypeError(TypeError):
    """A checked function returned something that is not a `float`."""

    _osmosis_kind = "wrong_type"


@dataclass(frozen=True)
class Marker:
    """What a decorator leaves on a function: which one it was, and whether the signature was checked."""

    kind: Kind
    style: Style


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, with annotations resolved where they were text."""

    name: str
    parameters: tuple[inspect.Parameter, ...]
    bindable: inspect.Signature

    @property
    def style(self) -> Style:
        """`classic` when the first parameter is `solution_str`: only such functions are checked."""
        first = self.parameters[0].name if self.parameters else ""
        return "classic" if first == FIRST_OF_CLASSIC else "free"

    def takes(self, keyword: str) -> bool:
        """Whether the function can be called with this keyword."""
        return any(p.kind is p.VAR_KEYWORD or p.name == keyword for p in self.parameters)

    def without_foreign_source(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a call, less `data_source` where the function has no place for it."""
        if self.takes("data_source"):
            return dict(keywords)
        return {name: value for name, value in keywords.items() if name != "data_source"}


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read a function's signature once, at decoration.

    Raises TypeError when the object is not a function with a readable signature.
    """
    name = getattr(function, "__qualname__", repr(function))
    try:
        bindable = inspect.signature(function)
    except ValueError as error:
        raise TypeError(f"{name}: its signature cannot be read ({error})") from error
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    resolved = tuple(
        p.replace(annotation=_resolve(p.annotation, names)) for p in bindable.parameters.values()
    )
    return Signature(name, resolved, bindable)


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names)["it"]
    except (NameError, SyntaxError, AttributeError, TypeError):
        return annotation


def shown(annotation: Any) -> str:
    """An annotation as its author would recognise it in an error."""
    if annotation is inspect.Parameter.empty:
        return "no annotation"
    return annotation.__name__ if annotation in (str, dict) else str(annotation)


def refuse(signature: Signature, parameter: str, found: str, wanted: str) -> TypeError:
    """The error for a parameter that breaks a rule: where, what was found, what to write instead."""
    return TypeError(f"{signature.name}: parameter '{parameter}' has {found}; write {wanted}")


def must_have_three(signature: Signature, example: str) -> None:
    """Raise TypeError unless the function has at least three parameters."""
    count = len(signature.parameters)
    if count < 3:
        raise TypeError(f"{signature.name}: has {count} parameter(s), needs at least three: {example}")


def must_be_named(signature: Signature, index: int, name: str) -> inspect.Parameter:
    """The parameter at that place. Raises TypeError when it has another name."""
    parameter = signature.parameters[index]
    if parameter.name != name:
        raise TypeError(
            f"{signature.name}: parameter {index + 1} is named '{parameter.name}'; it must be '{name}'"
        )
    return parameter


def must_return_float(signature: Signature, result: Any) -> float:
    """The result of a checked function. Raises ResultTypeError unless it is a `float` (subclasses pass)."""
    if isinstance(result, float):
        return result
    raise ResultTypeError(
        f"{signature.name}: returned {type(result).__name__}; a reward must be a float (write float(...))"
    )
