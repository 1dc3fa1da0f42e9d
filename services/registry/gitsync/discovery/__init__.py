"""What a repository offers, read from its syntax trees: nothing is imported, nothing is run.

Guaranteed: one bad file does not hide the others. What cannot be seen statically (an alias of a type, a decorator made
at run time) is left to the import in the sandbox, never reported as a fault here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from libs.common.contracts.code import Finding, SyncError
from services.registry.gitsync.discovery.parsing import Module, parse
from services.registry.gitsync.discovery.rewards import scored_functions
from services.registry.gitsync.discovery.tools import tool_server
from services.registry.gitsync.errors import fault, warning

FOLDERS = ("reward_fn", "reward_rubric", "mcp")
_EMPTY = (
    "nothing to train with was found: put functions with @osmosis_reward into reward_fn/*.py, functions with "
    "@osmosis_rubric into reward_rubric/*.py, or a FastMCP server into mcp/main.py"
)


@dataclass(frozen=True)
class Discovered:
    """Findings by file and line, and everything that is wrong."""

    findings: list[Finding]
    errors: list[SyncError]

    @property
    def usable(self) -> bool:
        """Whether nothing is an error; warnings are no obstacle."""
        return all(error.severity == "warning" for error in self.errors)


def discover(sources: Mapping[str, bytes], folders: Collection[str] = ()) -> Discovered:
    """Look into `sources` (path to content); `folders`: names at the repository's root."""
    errors = [_misnamed(folder) for folder in sorted(folders) if _is_misnamed(folder)]
    modules: list[Module] = []
    for path in sorted(sources):
        if _is_looked_into(path):
            parsed = parse(path, sources[path])
            if isinstance(parsed, Module):
                modules.append(parsed)
            else:
                errors.append(parsed)
    findings: list[Finding] = []
    for found, faults in (scored_functions(modules), tool_server(modules, sources)):
        findings += found
        errors += faults
    findings.sort(key=lambda finding: (finding.file, finding.line))
    errors += _ambiguous(findings)
    if not findings and not errors:
        errors.append(fault(_EMPTY))
    return Discovered(findings, errors)


def _is_looked_into(path: str) -> bool:
    folder, _, rest = path.partition("/")
    if folder == "mcp":
        return not rest.startswith(("test/", "tests/"))
    return folder in ("reward_fn", "reward_rubric") and "/" not in rest


def _is_misnamed(folder: str) -> bool:
    return folder not in FOLDERS and folder.lower().replace("-", "_") in FOLDERS


def _misnamed(folder: str) -> SyncError:
    wanted = folder.lower().replace("-", "_")
    return warning(f"the folder is not looked into: rename it to {wanted}/", file=folder)


def _ambiguous(findings: list[Finding]) -> list[SyncError]:
    """Rewards and rubrics share one space of names, tools have one of their own."""
    seen: dict[tuple[bool, str], Finding] = {}
    errors: list[SyncError] = []
    for finding in findings:
        first = seen.setdefault((finding.kind in ("reward", "rubric"), finding.name), finding)
        if first is not finding:
            message = (
                f"{finding.name!r} is the name of another one in {first.file}, line {first.line}; rename one"
            )
            errors.append(fault(message, file=finding.file, line=finding.line))
    return errors
