"""Which rows are trained on and which are held out: a function of seed and share alone, so a run can be said again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """Row indices, each in one of the two, in ascending order."""

    train: Sequence[int]
    heldout: Sequence[int]


def split_rows(rows: int, *, share: float, seed: int) -> Split:
    """Hold out `share` of the rows, at least one when `share` is positive, and never all of them.

    Raises:
        ValueError: a share outside 0..1, or rows that cannot be split in two.
    """
    if not 0 <= share < 1:
        raise ValueError(f"a share of {share} is not in 0 ≤ share < 1")
    if share == 0:
        return Split(range(rows), ())
    if rows < 2:
        raise ValueError(f"{rows} row(s) cannot be split; hold out none, or name a dataset for validation")
    count = min(max(1, round(rows * share)), rows - 1)
    heldout = sorted(random.Random(seed).sample(range(rows), count))
    out = frozenset(heldout)
    return Split([row for row in range(rows) if row not in out], heldout)
