"""What every kind of work of an attempt gets, and how its computing thread waits for the event loop.

One event loop does the talking (service, blobs, engine's door); one thread computes. The thread hands coroutines over
and waits for them, so nothing is shared between the two but values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from libs.common.blobs import BlobStore
from libs.common.clock import Clock
from services.trainer.attempt.control import Control
from services.trainer.attempt.link import Link
from services.trainer.attempt.settings import AttemptSettings

T = TypeVar("T")


class WorkFailed(Exception):
    """The work cannot be done; the text is for the user as it stands."""


class Talk:
    """The event loop as the computing thread sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, talk: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the event loop; its exception comes out here."""
        return asyncio.run_coroutine_threadsafe(talk, self._loop).result()


@dataclass(frozen=True)
class Context:
    """One attempt. `scratch`: a folder of its own that goes when it ends; `cache` outlives it."""

    settings: AttemptSettings
    blobs: BlobStore
    clock: Clock
    link: Link
    control: Control
    scratch: Path

    @property
    def cache(self) -> Path:
        """Folders that later attempts use again, named by their content."""
        return self.settings.data_dir.absolute() / "cache"

    @property
    def epoch(self) -> int:
        """The attempt's epoch."""
        return self.settings.attempt_epoch
