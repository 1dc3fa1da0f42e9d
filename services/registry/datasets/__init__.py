"""Datasets: a file as a user wrote it, checked row by row, and written through to the one form that is trained on.

Guaranteed: whatever the file holds, memory stays bounded by `Limits`, each fault is reported with row and field, and
nothing but a valid file becomes a dataset.
"""

from services.registry.datasets.canonical import CanonicalWriter, RowReader
from services.registry.datasets.formats import format_of
from services.registry.datasets.limits import Limits
from services.registry.datasets.validation import Outcome, validate

__all__ = [
    "CanonicalWriter",
    "Limits",
    "Outcome",
    "RowReader",
    "format_of",
    "validate",
]
