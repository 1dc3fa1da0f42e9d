"""Imports a project's modules once, in the template, and remembers those that can't be imported.

Guaranteed here: `from reward_fn.util import x` and a plain `import util` both work; one bad file hides no other; an
import error is told with its traceback, the project's own lines only.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

LONGEST_ERROR = 4096
"""Characters of an error that are kept."""


class ImportFailed(Exception):
    """The module or the function could not be had; the text says why."""


class Modules:
    """The modules of one project, by file."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._loaded: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def knows(self, file: str) -> bool:
        """Whether the file was imported before, well or not."""
        return file in self._loaded or file in self._failed

    def function(self, file: str, name: str) -> Callable[..., Any]:
        """The function of that name. Raises ImportFailed."""
        if not self.knows(file):
            self._load(file)
        if file in self._failed:
            raise ImportFailed(self._failed[file])
        found = getattr(self._loaded[file], name, None)
        if not callable(found):
            raise ImportFailed(f"{file} has no function {name}")
        return found

    def _load(self, file: str) -> None:
        folder, _, leaf = file.rpartition("/")
        beside = os.path.join(self._root, folder)
        if folder and beside not in sys.path:
            sys.path.insert(1, beside)
        name = (
            ".".join([*folder.split("/"), leaf.removesuffix(".py")]) if folder else leaf.removesuffix(".py")
        )
        try:
            self._loaded[file] = importlib.import_module(name)
        except BaseException as error:
            self._failed[file] = told(error, self._root)


def told(error: BaseException, root: str) -> str:
    """An error for its author: what it says, then the lines of the project that led to it."""
    try:
        says = "".join(traceback.format_exception_only(error)).strip()
    except BaseException:
        says = type(error).__name__
    frames = [frame for frame in _frames(error) if frame.filename.startswith(root + "/")]
    lines = [f"  {frame.filename[len(root) + 1 :]}:{frame.lineno} in {frame.name}" for frame in frames[-20:]]
    return "\n".join([says[:LONGEST_ERROR], *lines])[: 2 * LONGEST_ERROR]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    try:
        return list(traceback.extract_tb(error.__traceback__))
    except BaseException:
        return []
