"""Checkpoints that a run does not keep: their blobs go in the background, the manifest first.

Guaranteed: a checkpoint is out of every list before its first blob goes; a process that dies on the way is followed by
one that goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.unit_of_work import UnitsOfWork
from services.registry.store import RegistryStore

AT_ONCE = 20
POLL_S = 300.0
"""How long something that failed, or that another process left behind, waits."""

_log = structlog.get_logger(__name__)


class Pruning:
    """Deletes the blobs of surplus checkpoints."""

    def __init__(self, blobs: BlobStore, units: UnitsOfWork[RegistryStore]) -> None:
        self._blobs = blobs
        self._units = units
        self._wake = asyncio.Event()

    def notify(self) -> None:
        """There is something to prune."""
        self._wake.set()

    async def run(self) -> None:
        """Prune until cancelled."""
        while True:
            try:
                pruned = await self._prune()
            except Exception as error:  # noqa: BLE001 - the blob store is a foreign peer; it is asked again later
                _log.warning("checkpoints could not be pruned; trying again later", error=repr(error))
                pruned = 0
            if pruned < AT_ONCE:
                with suppress(TimeoutError):
                    # Not wait_for: on Python 3.11 it loses a cancellation that comes with the event.
                    async with asyncio.timeout(POLL_S):
                        await self._wake.wait()
                self._wake.clear()

    async def _prune(self) -> int:
        async with self._units.read() as store:
            surplus = [(row.id, row.manifest_json) for row in await store.checkpoints.to_prune(AT_ONCE)]
        for checkpoint_id, manifest_json in surplus:
            await self._delete(checkpoint_id, BlobRef.model_validate_json(manifest_json))
            async with self._units.begin() as uow:
                await uow.store.checkpoints.mark_pruned(checkpoint_id, uow.now())
        return len(surplus)

    async def _delete(self, checkpoint_id: str, manifest: BlobRef) -> None:
        folder = manifest.key.rpartition("/")[0]
        if not folder.endswith(f"/{checkpoint_id}"):
            # Not where checkpoints lie: whatever else is below it must not go.
            _log.warning("a checkpoint lies in an unexpected place and is left there", key=manifest.key)
            return
        await self._blobs.delete(manifest.key)
        async for key in self._blobs.list(f"{folder}/"):
            await self._blobs.delete(key)
