"""The rules for signatures of reward functions and rubrics, as far as they can be seen without importing.

A function whose first parameter is not `solution_str` is free. An annotation that may be an alias is not judged: the
import in the sandbox decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from services.registry.gitsync.discovery.decorators import Scored
from services.registry.gitsync.discovery.parsing import Function

FIRST_OF_CLASSIC = "solution_str"

Seen = Literal["str", "dict", "optional str", "optional dict", "none", "other", "unknown"]
"""What an annotation is: `none` when there is none, `other` when it is surely something else."""

_NOT_TEXT = frozenset(
    [
        "int",
        "float",
        "bool",
        "bytes",
        "list",
        "tuple",
        "set",
        "frozenset",
        "object",
        "complex",
        "Any",
        "List",
        "Tuple",
        "Set",
        "Optional",
        "Union",
    ]
)
_GENERIC = frozenset(
    [
        "dict",
        "list",
        "tuple",
        "set",
        "Dict",
        "List",
        "Tuple",
        "Set",
        "Mapping",
        "Sequence",
        "Iterable",
        "Literal",
    ]
)
_ALLOWED: dict[tuple[Scored, str], frozenset[Seen]] = {
    ("reward", "solution_str"): frozenset({"str"}),
    ("reward", "ground_truth"): frozenset({"str"}),
    ("reward", "extra_info"): frozenset({"dict", "optional dict"}),
    ("rubric", "solution_str"): frozenset({"str"}),
    ("rubric", "ground_truth"): frozenset({"str", "optional str"}),
}
_WRITE = {
    "reward": "(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs)",
    "rubric": "(solution_str: str, ground_truth: str | None, extra_info: dict, **kwargs)",
}


@dataclass(frozen=True)
class _Parameter:
    name: str
    line: int
    annotation: ast.expr | None
    has_default: bool
    by_keyword: bool


def signature_faults(function: Function, kind: Scored) -> Iterator[tuple[int, str]]:
    """Line and message of every rule that the signature surely breaks."""
    parameters = _parameters(function.args)
    if not parameters or parameters[0].name != FIRST_OF_CLASSIC:
        return
    if len(parameters) < 3:
        yield (
            function.lineno,
            f"{len(parameters)} parameter(s), at least three are needed: write {_WRITE[kind]}",
        )
        return
    for parameter, wanted in zip(parameters, ("solution_str", "ground_truth", "extra_info"), strict=False):
        if parameter.name != wanted:
            yield (
                parameter.line,
                f"parameter {parameter.name!r} must be named {wanted!r}: write {_WRITE[kind]}",
            )
            continue
        allowed = _ALLOWED.get((kind, wanted))
        if allowed and seen_in(parameter.annotation) not in allowed | {"unknown"}:
            yield parameter.line, f"parameter {wanted!r} has {_shown(parameter)}: write {_WRITE[kind]}"
        if not parameter.by_keyword:
            yield parameter.line, f"parameter {wanted!r} is positional only, but calls are made by keyword"
        yield from _default_faults(parameter, kind)


def _default_faults(parameter: _Parameter, kind: Scored) -> Iterator[tuple[int, str]]:
    if kind == "reward" and parameter.name == "extra_info" and not parameter.has_default:
        yield parameter.line, f"parameter 'extra_info' needs a default: write {_WRITE[kind]}"
    if kind == "rubric" and parameter.name != "extra_info" and parameter.has_default:
        yield parameter.line, f"parameter {parameter.name!r} must have no default: write {_WRITE[kind]}"


def _parameters(arguments: ast.arguments) -> list[_Parameter]:
    """In the order of `inspect.signature`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    found = [
        _Parameter(a.arg, a.lineno, a.annotation, i >= first_default, i >= len(arguments.posonlyargs))
        for i, a in enumerate(positional)
    ]
    if arguments.vararg:
        found.append(_Parameter(arguments.vararg.arg, arguments.vararg.lineno, None, False, False))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(
            _Parameter(argument.arg, argument.lineno, argument.annotation, default is not None, True)
        )
    if arguments.kwarg:
        found.append(_Parameter(arguments.kwarg.arg, arguments.kwarg.lineno, None, False, False))
    return found


def seen_in(annotation: ast.expr | None) -> Seen:
    """What an annotation surely is."""
    if annotation is None:
        return "none"
    if isinstance(annotation, ast.Constant):
        return _seen_in_text(annotation.value)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _union([annotation.left, annotation.right])
    if isinstance(annotation, ast.Subscript):
        return _seen_in_subscript(annotation)
    name = _last_name(annotation)
    if isinstance(annotation, ast.Name) and name in ("str", "dict"):
        return name
    return "other" if name in _NOT_TEXT else "unknown"


def _seen_in_text(value: object) -> Seen:
    """A quoted annotation means what is in the quotes."""
    if not isinstance(value, str):
        return "other"
    try:
        return seen_in(ast.parse(value, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "unknown"


def _seen_in_subscript(annotation: ast.Subscript) -> Seen:
    name = _last_name(annotation.value)
    if name == "Optional":
        return _union([annotation.slice, ast.Constant(None)])
    if name == "Union":
        members = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return _union(members)
    return "other" if name in _GENERIC else "unknown"


def _union(members: list[ast.expr]) -> Seen:
    real = [member for member in members if not (isinstance(member, ast.Constant) and member.value is None)]
    if len(real) != 1 or len(real) == len(members):
        return "other"
    inner = seen_in(real[0])
    if inner == "str":
        return "optional str"
    return "optional dict" if inner == "dict" else inner if inner == "unknown" else "other"


def _last_name(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def _shown(parameter: _Parameter) -> str:
    if parameter.annotation is None:
        return "no annotation"
    return f"the annotation {ast.unparse(parameter.annotation)[:100]!r}"
