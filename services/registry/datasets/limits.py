"""What a dataset may cost at most. A file over a limit gets an error that names the limit."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes of the file or of the canonical form, lengths in characters."""

    row_bytes: int = 4 * MIB
    """One row, as written in the file and in canonical form; 4 MiB is about a million tokens."""
    columns: int = 1000
    column_name: int = 256
    depth: int = 64
    """Lists and objects inside each other in one column: peers that read JSON stop at a few hundred."""
    rows: int = 100_000_000
    content_bytes: int = 20 * GIB
    """The canonical form: four times the largest upload."""
    row_group_bytes: int = GIB
    """Parquet: uncompressed size of one row group, as its footer states it."""
    errors: int = 100
    """Faults that are shown; all are counted."""
    preview_rows: int = 5
    preview_columns: int = 50
    preview_text: int = 500


FREE_BYTES = 2 * GIB
LARGEST_RATIO = 100


def limits_for(file_bytes: int) -> Limits:
    """Limits of a file of that size: a small one must not unpack to a full disk.

    A column that repeats one long text unpacks a hundredfold in good faith; two GiB are always granted.
    """
    most = Limits().content_bytes
    return Limits(content_bytes=min(most, max(FREE_BYTES, LARGEST_RATIO * file_bytes)))
