"""Finds the tool server of a project: the FastMCP object that `mcp/main.py` makes when it is imported.

Guaranteed here: relative and absolute imports within the folder both work, `if __name__ == "__main__"` does not run,
no argument is parsed, and each way in which this can fail has its own words. One process serves one project, so what
the folder put on the search path may stay there, and imports inside a tool's body work too.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from typing import Any

from .modules import told

PACKAGE = "_osmosis_project_tools"


class LoadError(Exception):
    """The project has no tool server that can be used; the text is for its author."""


def load_server(project: str) -> tuple[Any, type[Any], list[str]]:
    """The FastMCP object, its class as imported, and warnings. Raises LoadError."""
    folder = os.path.join(project, "mcp")
    main = os.path.join(folder, "main.py")
    if not os.path.isdir(folder):
        raise LoadError("the repository has no folder mcp/")
    if not os.path.isfile(main):
        raise LoadError("mcp/main.py is missing: it must make the FastMCP object")
    warnings = _shadowing(folder)
    _search_in(folder, project)
    kind = _fastmcp()
    module = _import(main, folder, project)
    server, more = _pick(vars(module), kind)
    return server, kind, warnings + more


def _shadowing(folder: str) -> list[str]:
    if not os.path.exists(os.path.join(folder, "__init__.py")):
        return []
    return [
        "mcp/__init__.py hides the package `mcp`, which FastMCP needs, wherever the root is imported from; remove it"
    ]


def _search_in(folder: str, project: str) -> None:
    """The folder first, the repository's root last: a folder named mcp must not hide the installed package."""
    sys.path[:] = [folder, *(path for path in sys.path if path != project), project]


def _fastmcp() -> type[Any]:
    if importlib.util.find_spec("fastmcp") is None:
        raise LoadError("fastmcp is not installed in the project's environment: add it to pyproject.toml")
    try:
        from fastmcp import FastMCP
    except Exception as error:
        raise LoadError(f"fastmcp cannot be imported: {type(error).__name__}: {error}") from error
    return FastMCP


def _import(main: str, folder: str, project: str) -> types.ModuleType:
    package = types.ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.main", main)
    if spec is None or spec.loader is None:
        raise LoadError("mcp/main.py cannot be read as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise LoadError(f"importing mcp/main.py failed: {told(error, project)}") from error
    return module


def _pick(names: dict[str, Any], kind: type[Any]) -> tuple[Any, list[str]]:
    servers = [name for name in sorted(names) if isinstance(names[name], kind)]
    if not servers:
        raise LoadError("mcp/main.py has no FastMCP object among its global names")
    chosen = names[servers[0]]
    others = [name for name in servers if names[name] is not chosen]
    if not others:
        return chosen, []
    return chosen, [
        f"mcp/main.py has more than one FastMCP object: {servers[0]} is used, not {', '.join(others)}"
    ]
