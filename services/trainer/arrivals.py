"""Wakes the long polls of this process when a group has arrived. Other replicas' polls ask the database again."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from libs.common.identifiers import BatchId


class Arrivals:
    """One event a batch that somebody waits for; it lives as long as a waiter holds it."""

    def __init__(self) -> None:
        self._expected: WeakValueDictionary[BatchId, asyncio.Event] = WeakValueDictionary()

    def expect(self, batch_id: BatchId) -> asyncio.Event:
        """The event of the next arrival. Take it before asking the database, so that none is missed."""
        event = self._expected.get(batch_id)
        if event is None:
            event = asyncio.Event()
            self._expected[batch_id] = event
        return event

    def announce(self, batch_id: BatchId) -> None:
        """A group of the batch was committed."""
        event = self._expected.pop(batch_id, None)
        if event is not None:
            event.set()
