"""Rows of a dataset by their index, and the prompt that a row makes.

The dataset's content and index are fetched once to a cache that is named by their digests; a row is then one read.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import DatasetSnapshot
from services.rollout.messages import Message

_OFFSET_BYTES = 8
_PROMPT_COLUMNS = frozenset({"system_prompt", "user_prompt", "ground_truth"})
SCRIPTED_COLUMN = "scripted_first_turn"


@dataclass(frozen=True)
class Prompt:
    """What a row makes. `metadata`: its further columns, with their own names."""

    messages: list[Message]
    ground_truth: str | None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    scripted: str | None = None


def prompt_of(row: Mapping[str, Any]) -> Prompt:
    """The opening messages of a row; a blank system prompt makes no message."""
    texts = (("system", row.get("system_prompt")), ("user", row.get("user_prompt")))
    messages: list[Message] = [
        {"role": role, "content": text} for role, text in texts if isinstance(text, str) and text.strip()
    ]
    truth, scripted = row.get("ground_truth"), row.get(SCRIPTED_COLUMN)
    return Prompt(
        messages=messages,
        ground_truth=None if truth is None else str(truth),
        metadata={name: value for name, value in row.items() if name not in _PROMPT_COLUMNS},
        scripted=scripted if isinstance(scripted, str) and scripted.strip() else None,
    )


class DatasetRows:
    """Reads rows of validated datasets."""

    def __init__(self, blobs: BlobStore, cache: Path) -> None:
        self._blobs = blobs
        self._cache = cache
        self._fetching = asyncio.Lock()

    async def rows(self, dataset: DatasetSnapshot, indices: Collection[int]) -> dict[int, dict[str, Any]]:
        """The rows with those indices, from 0; an index that the dataset does not have is left out.

        Raises:
            BlobMissing, BlobDamaged: the dataset is not in the blob store.
        """
        there = sorted({index for index in indices if 0 <= index < dataset.rows})
        content, offsets = await self._file(dataset.content), await self._file(dataset.index)
        return await asyncio.to_thread(_read_rows, content, offsets, there)

    async def _file(self, ref: BlobRef) -> Path:
        path = self._cache / ref.sha256
        async with self._fetching:
            if not await asyncio.to_thread(path.exists):
                await self._blobs.fetch(ref, path)
        return path


def _read_rows(content: Path, offsets: Path, indices: Sequence[int]) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    with content.open("rb") as lines, offsets.open("rb") as places:
        for index in indices:
            places.seek(index * _OFFSET_BYTES)
            start, stop = struct.unpack("<QQ", places.read(2 * _OFFSET_BYTES))
            lines.seek(start)
            rows[index] = json.loads(lines.read(stop - start))
    return rows
