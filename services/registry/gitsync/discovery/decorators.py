"""Which expressions mean our decorators in a module: imported, aliased, assigned to another name."""

from __future__ import annotations

import ast
from typing import Literal

from services.registry.gitsync.discovery.parsing import Module, run_at_import

Scored = Literal["reward", "rubric"]

PACKAGE = "osmosis_ai"
DECORATORS: dict[str, Scored] = {"osmosis_reward": "reward", "osmosis_rubric": "rubric"}


class Names:
    """The names that stand for the decorators and their package in one module.

    The plain names always count, so that a star import of the project's own does not hide a function.
    """

    def __init__(self, module: Module) -> None:
        self._decorators: dict[str, Scored] = dict(DECORATORS)
        self._packages = {PACKAGE}
        for statement in run_at_import(module.tree.body):
            self._learn(statement)

    def _learn(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname and alias.name.split(".")[0] == PACKAGE:
                    self._packages.add(alias.asname)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.name in DECORATORS:
                    self._decorators[alias.asname or alias.name] = DECORATORS[alias.name]
        elif isinstance(statement, ast.Assign):
            kind = self.kind_of(statement.value)
            for target in statement.targets:
                if kind and isinstance(target, ast.Name):
                    self._decorators[target.id] = kind

    def kind_of(self, expression: ast.expr) -> Scored | None:
        """Which decorator an expression is, None when it is none of ours."""
        if isinstance(expression, ast.Name):
            return self._decorators.get(expression.id)
        if isinstance(expression, ast.Attribute) and _root(expression) in self._packages:
            return DECORATORS.get(expression.attr)
        return None


def _root(expression: ast.expr) -> str | None:
    """`a` of `a.b.c`."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None
