"""Python files as syntax trees, and the statements that run when a module is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from libs.common.contracts.code import SyncError
from services.registry.gitsync.errors import fault

# Doubtful source of a user must not fill our log; our own was compiled before it runs.
warnings.filterwarnings("ignore", category=SyntaxWarning)

Function = ast.FunctionDef | ast.AsyncFunctionDef
DESCRIPTION_CHARACTERS = 2000


@dataclass(frozen=True)
class Module:
    """A parsed file; `path` from the repository's root."""

    path: str
    tree: ast.Module

    @property
    def stem(self) -> str:
        """`compute_reward` of `reward_fn/compute_reward.py`."""
        return self.path.rsplit("/", 1)[-1].removesuffix(".py")


def parse(path: str, content: bytes) -> Module | SyncError:
    """The module, or why it is none."""
    try:
        return Module(path, ast.parse(content, filename=path))
    except SyntaxError as error:
        return fault(f"syntax error: {error.msg}", file=path, line=error.lineno)
    except (ValueError, RecursionError, MemoryError) as error:
        return fault(f"this is not Python that can be read: {error}"[:300], file=path)


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module that run at import, those inside `if`, `try`, `with` and loops too, in order."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and _is_main_guard(statement.test):
            yield from run_at_import(statement.orelse)
        elif isinstance(statement, (ast.If, ast.For, ast.While)):
            yield from run_at_import([*statement.body, *statement.orelse])
        elif isinstance(statement, (ast.Try, ast.TryStar)):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from run_at_import([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.With):
            yield from run_at_import(statement.body)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def description_of(function: Function) -> str:
    """The docstring, cleaned of indentation and cut."""
    return (ast.get_docstring(function) or "")[:DESCRIPTION_CHARACTERS]
