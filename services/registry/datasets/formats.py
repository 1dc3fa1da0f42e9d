"""Which format a file has: its suffix says so, and its first bytes must not say something else."""

from __future__ import annotations

from pathlib import PurePosixPath

from libs.common.contracts.datasets import DatasetFormat
from libs.common.errors import FieldError, Invalid

FORMATS: tuple[DatasetFormat, ...] = ("parquet", "jsonl", "csv")
HEAD_BYTES = 8

_UTF8_BOM = b"\xef\xbb\xbf"
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "is compressed with gzip; upload it unpacked"),
    (b"PK\x03\x04", "is a ZIP archive (or a spreadsheet); upload the file inside as CSV"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; upload it unpacked"),
    (b"BZh", "is compressed with bzip2; upload it unpacked"),
)


def format_of(file_name: str) -> DatasetFormat:
    """The format that the suffix names, in any case.

    Raises:
        Invalid: any other suffix, `.json` among them.
    """
    suffix = PurePosixPath(file_name.replace("\\", "/")).suffix.lower().removeprefix(".")
    if suffix in FORMATS:
        return suffix
    hint = "; a .json file holds one document, write one object a line as .jsonl" if suffix == "json" else ""
    message = f"{file_name!r}: a dataset is a .parquet, .jsonl or .csv file{hint}"
    raise Invalid(message, fields=[FieldError("file_name", message)])


def has_utf8_bom(head: bytes) -> bool:
    """Whether the file starts with a UTF-8 byte order mark."""
    return head.startswith(_UTF8_BOM)


def why_not_text(head: bytes) -> str | None:
    """What the first bytes say when they are not those of UTF-8 text: a sentence's end, else None."""
    if head.startswith(b"PAR1"):
        return "is a Parquet file; give it the suffix .parquet"
    for magic, message in _FOREIGN:
        if head.startswith(magic):
            return message
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head[:4]:
        return "is UTF-16 or UTF-32; save it as UTF-8"
    return None
