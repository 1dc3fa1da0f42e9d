"""Folders for work under way, below the data folder: uploads may be larger than the system's temporary folder.

Guaranteed: what a killed process left behind is gone an hour after the next start at the latest.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.common.settings import Settings

LEFT_BEHIND_S = 3600.0
"""Longer than any work of ours may take."""


class Scratch:
    """Makes folders and forgets old ones."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.data_dir.absolute() / "scratch" / "registry"

    @asynccontextmanager
    async def folder(self, purpose: str) -> AsyncGenerator[Path]:
        """An empty folder, gone when the block ends."""
        path = await asyncio.to_thread(self._make, purpose)
        try:
            yield path
        finally:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    async def sweep(self) -> None:
        """Forget what killed processes left behind, now and then."""
        while True:
            await asyncio.to_thread(self._forget)
            await asyncio.sleep(LEFT_BEHIND_S)

    def _make(self, purpose: str) -> Path:
        self._root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=self._root))

    def _forget(self) -> None:
        if not self._root.is_dir():
            return
        for path in self._root.iterdir():
            if time.time() - path.stat().st_mtime > LEFT_BEHIND_S:
                shutil.rmtree(path, ignore_errors=True)
