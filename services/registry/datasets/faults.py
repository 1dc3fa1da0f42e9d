"""Collecting faults: the first ones are kept, all are counted, and a warning is said once with its number of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from libs.common.contracts.datasets import RowError

FIELD_LENGTH = 256


@dataclass
class _Warned:
    first_row: int | None
    message: str
    rows: int = 0


class Faults:
    """The faults of one file, in the order in which they are met: by row, then by column."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.errors: list[RowError] = []
        self.counts: Counter[str] = Counter()
        self.total = 0
        self._warned: dict[tuple[str, str | None], _Warned] = {}

    def error(self, kind: str, message: str, *, row: int | None = None, field: str | None = None) -> None:
        """Count a fault, and keep it while there is room."""
        self.counts[kind] += 1
        self.total += 1
        if len(self.errors) < self._keep:
            self.errors.append(RowError(row=row, field=_field(field), kind=kind, message=_sound(message)))

    def warn(self, kind: str, message: str, *, row: int | None = None, field: str | None = None) -> None:
        """Something that was accepted and altered, or that other tools would refuse."""
        self._warned.setdefault((kind, field), _Warned(row, message)).rows += 1

    @property
    def any(self) -> bool:
        """Whether the file is invalid."""
        return bool(self.counts)

    def warnings(self) -> list[RowError]:
        """One entry a kind and field, with the first row and the number of rows."""
        return [
            RowError(row=warned.first_row, field=_field(field), kind=kind, message=_sound(_counted(warned)))
            for (kind, field), warned in self._warned.items()
        ]


def _counted(warned: _Warned) -> str:
    return warned.message if warned.rows == 1 else f"{warned.message} ({warned.rows} rows)"


def _field(name: str | None) -> str | None:
    return None if name is None else _sound(name[:FIELD_LENGTH])


def _sound(text: str) -> str:
    """Text that can be stored and sent: what a file holds may be no Unicode."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
