"""Seeds of samples: the same batch, row, sample and turn always sample with the same seed, on every machine."""

from __future__ import annotations

import hashlib

SEED_BITS = 31
"""Engines take seeds as signed 32-bit integers at the least."""


def seed_of(batch_seed: int, row_index: int, sample_index: int, turn: int, replacement: int = 0) -> int:
    """The seed of one answer. `turn` from 0; `replacement`: how many rollouts failed in the sample's place before."""
    text = f"sample:{batch_seed}:{row_index}:{sample_index}:{turn}:{replacement}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - SEED_BITS)
