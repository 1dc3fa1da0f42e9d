"""Suffixes, and reading rows by index."""

from __future__ import annotations

import io

import pytest

from libs.common.errors import Invalid
from services.registry.datasets import RowReader, format_of
from tests.registry.dataset_files import GOOD, check, jsonl


@pytest.mark.parametrize("name", ["a.jsonl", "a.JSONL", "dir/a.csv", "a.b.Parquet"])
def test_the_suffix_says_the_format_in_any_case(name: str):
    assert format_of(name) == name.rsplit(".", 1)[1].lower()


@pytest.mark.parametrize("name", ["a.json", "a.txt", "jsonl", "a.jsonl.gz", ""])
def test_other_suffixes_are_refused(name: str):
    with pytest.raises(Invalid, match=r"\.jsonl"):
        format_of(name)


def test_a_row_is_read_by_its_index_alone():
    content = check(jsonl(GOOD, GOOD | {"n": 1}, GOOD | {"n": 2}), "jsonl").content
    offsets = [0]
    for line in content.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    reader = RowReader(io.BytesIO(content), io.BytesIO(b"".join(o.to_bytes(8, "little") for o in offsets)))
    assert reader.rows == 3
    assert reader.row(2)["n"] == 2
    with pytest.raises(IndexError):
        reader.row(3)
    with pytest.raises(IndexError):
        reader.row(-1)
