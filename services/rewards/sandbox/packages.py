"""Which installed packages a sandbox may import: a few named distributions and all that they require.

Guaranteed here: nothing else of the service's own environment is in the list, so user code sees neither the service's
libraries nor their versions.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from pathlib import Path

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements(
    distribution: metadata.Distribution, extras: frozenset[str]
) -> list[tuple[str, frozenset[str]]]:
    """Names and extras that a distribution asks for. Other markers are ignored: too many is harmless here."""
    found: list[tuple[str, frozenset[str]]] = []
    for line in distribution.requires or []:
        asked, _, marker = line.partition(";")
        wanted = _EXTRA.search(marker)
        if wanted is not None and _normal(wanted.group(1)) not in extras:
            continue
        match = _REQUIREMENT.match(asked)
        if match is not None:
            named = (match.group(2) or "").split(",")
            found.append((match.group(1), frozenset(_normal(extra) for extra in named if extra.strip())))
    return found


def _closure(names: tuple[str, ...]) -> dict[str, metadata.Distribution]:
    reached: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset[str]()) for name in names]
    while waiting:
        name, extras = waiting.pop()
        key = (_normal(name), extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        reached[key[0]] = distribution
        waiting.extend(_requirements(distribution, extras))
    return reached


@cache
def importable_paths(names: tuple[str, ...]) -> tuple[Path, ...]:
    """Top-level files and folders in site-packages of `names` and their requirements, sorted.

    A name that is not installed is left out: the tool host reports a missing `fastmcp` when a project needs it.
    """
    paths: set[Path] = set()
    for distribution in _closure(names).values():
        for file in distribution.files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".pth"):
                paths.add(Path(str(distribution.locate_file(top))))
    return tuple(sorted(path for path in paths if path.exists()))
