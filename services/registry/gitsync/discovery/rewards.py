"""Reward functions in `reward_fn/*.py` and rubrics in `reward_rubric/*.py`, named `file stem.function`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from libs.common.contracts.code import Finding, SyncError
from services.registry.gitsync.discovery.decorators import Names, Scored
from services.registry.gitsync.discovery.parsing import Function, Module, description_of, run_at_import
from services.registry.gitsync.discovery.signatures import signature_faults
from services.registry.gitsync.errors import fault, warning

_FOLDER: dict[Scored, str] = {"reward": "reward_fn", "rubric": "reward_rubric"}


def scored_functions(modules: Sequence[Module]) -> tuple[list[Finding], list[SyncError]]:
    """Findings and faults of every module in the two folders."""
    findings: list[Finding] = []
    errors: list[SyncError] = []
    for module in modules:
        folder = module.path.split("/")[0]
        if folder not in _FOLDER.values():
            continue
        for function, kind in _decorated(module, errors):
            faults = [*_place_faults(module, function, kind, folder)]
            faults += [
                fault(text, file=module.path, line=at) for at, text in signature_faults(function, kind)
            ]
            errors += faults
            if not faults:
                findings.append(_finding(module, function, kind))
    return findings, errors


def _decorated(module: Module, errors: list[SyncError]) -> Iterator[tuple[Function, Scored]]:
    """Functions at the module's top with one of our decorators; of several with one name the last counts."""
    names = Names(module)
    found: dict[str, tuple[Function, Scored]] = {}
    for statement in run_at_import(module.tree.body):
        if not isinstance(statement, Function):
            continue
        earlier = found.pop(statement.name, None)
        if earlier is not None:
            message = (
                f"{statement.name!r} is defined again in line {statement.lineno}: only the last one counts"
            )
            errors.append(warning(message, file=module.path, line=earlier[0].lineno))
        for decorator in statement.decorator_list:
            kind = names.kind_of(decorator)
            if kind is not None:
                found[statement.name] = (statement, kind)
            elif isinstance(decorator, ast.Call) and (called := names.kind_of(decorator.func)):
                message = f"write @osmosis_{called} without parentheses"
                errors.append(fault(message, file=module.path, line=decorator.lineno))
    yield from found.values()


def _place_faults(module: Module, function: Function, kind: Scored, folder: str) -> Iterator[SyncError]:
    if _FOLDER[kind] != folder:
        message = f"@osmosis_{kind} belongs into {_FOLDER[kind]}/; in {folder}/ it is not used"
        yield warning(message, file=module.path, line=function.lineno)


def _finding(module: Module, function: Function, kind: Scored) -> Finding:
    return Finding(
        kind=kind,
        name=f"{module.stem}.{function.name}",
        file=module.path,
        line=function.lineno,
        function=function.name,
        description=description_of(function),
    )
