"""Which rows a step samples, and which are held out: pure functions of the row count, the step and the run's seed.

Guaranteed: a resumed attempt needs nothing but the step to go on with the very rows that it would have had.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED_BITS = 31


@dataclass(frozen=True)
class Split:
    """Row indices, ascending; no row is in both."""

    training: tuple[int, ...]
    held_out: tuple[int, ...]


def held_out_rows(rows: int, share: float, seed: int, at_most: int) -> Split:
    """Hold out a share of `rows` rows, chosen by the seed: at least one of two or more rows when the share is not 0.

    Never more than `at_most`, and never all of them.
    """
    if share <= 0 or rows < 2:
        return Split(tuple(range(rows)), ())
    count = min(max(round(rows * share), 1), at_most, rows - 1)
    chosen = frozenset(_shuffled(range(rows), f"held-out:{seed}")[:count])
    return Split(tuple(row for row in range(rows) if row not in chosen), tuple(sorted(chosen)))


def rows_of_step(rows: Sequence[int], per_step: int, step: int, seed: int) -> tuple[int, ...]:
    """Rows of step `step` (from 1), `per_step` of them, in passes over all rows, each in an order of its own.

    The last step of a pass takes what is left.

    Raises:
        ValueError: there are no rows, or the step is not positive.
    """
    if not rows or step < 1:
        raise ValueError(f"step {step} over {len(rows)} rows does not exist")
    steps_of_pass = -(-len(rows) // per_step)
    which_pass, place = divmod(step - 1, steps_of_pass)
    order = _shuffled(rows, f"pass:{seed}:{which_pass}")
    return tuple(order[place * per_step : (place + 1) * per_step])


def batch_seed(seed: int, phase: str, step: int) -> int:
    """The seed of a batch, 31 bits: the same in every attempt that takes this step."""
    digest = hashlib.sha256(f"batch:{seed}:{phase}:{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def _shuffled(rows: Sequence[int], salt: str) -> list[int]:
    order = list(rows)
    # A text seed goes through SHA-512, so the order is the same on every machine and Python version.
    random.Random(salt).shuffle(order)
    return order
