"""The tool server `mcp/main.py` and the tools registered below `mcp/`, by `@server.tool` in any of its forms."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from libs.common.contracts.code import Finding, SyncError
from services.registry.gitsync.discovery.parsing import Function, Module, description_of
from services.registry.gitsync.errors import fault, warning

ENTRY = "mcp/main.py"
SHADOW = "mcp/__init__.py"


def tool_server(
    modules: Sequence[Module], sources: Mapping[str, bytes]
) -> tuple[list[Finding], list[SyncError]]:
    """The entry point and its tools."""
    if not any(path.startswith("mcp/") for path in sources):
        return [], []
    findings: list[Finding] = []
    errors: list[SyncError] = []
    if ENTRY in sources:
        findings.append(Finding(kind="tool_server", name="mcp.main", file=ENTRY, line=1))
    else:
        errors.append(fault("mcp/main.py is missing: it is what loads the tools; add it", file=ENTRY))
    if SHADOW in sources:
        message = "this file hides the installed package 'mcp' that FastMCP needs; delete it"
        errors.append(fault(message, file=SHADOW, line=1))
    for module in modules:
        if module.path.startswith("mcp/"):
            for function, decorator in _tools(module.tree):
                errors += _faults(module, function)
                findings.append(_finding(module, function, decorator))
    return findings, errors


def _tools(tree: ast.Module) -> Iterator[tuple[Function, ast.expr]]:
    """Decorated functions, those inside a registering function too."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            decorator = next((each for each in node.decorator_list if _is_tool(each)), None)
            if decorator is not None:
                yield node, decorator


def _is_tool(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Attribute) and target.attr == "tool"


def _faults(module: Module, function: Function) -> Iterator[SyncError]:
    arguments = function.args
    for starred in (arguments.vararg, arguments.kwarg):
        if starred is not None:
            message = f"a tool cannot take *{starred.arg}: FastMCP refuses it; name every parameter"
            yield fault(message, file=module.path, line=function.lineno)
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.annotation is None and argument.arg not in ("self", "cls"):
            message = (
                f"parameter {argument.arg!r} has no type: the model is told no type for it; add a type hint"
            )
            yield warning(message, file=module.path, line=argument.lineno)


def _finding(module: Module, function: Function, decorator: ast.expr) -> Finding:
    return Finding(
        kind="tool",
        name=_text_argument(decorator, "name", first=True) or function.name,
        file=module.path,
        line=function.lineno,
        function=function.name,
        description=_text_argument(decorator, "description") or description_of(function),
    )


def _text_argument(decorator: ast.expr, name: str, *, first: bool = False) -> str | None:
    """A literal text argument of the decorator's call, by keyword or as its first."""
    if not isinstance(decorator, ast.Call):
        return None
    values = [keyword.value for keyword in decorator.keywords if keyword.arg == name]
    if first and decorator.args:
        values.append(decorator.args[0])
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return None
