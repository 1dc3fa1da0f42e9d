"""Splits, suffixes and reading rows by index."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import Invalid
from services.registry.datasets import RowReader, format_of, split_rows
from tests.registry.dataset_files import GOOD, check, jsonl


@given(st.integers(2, 500), st.floats(0.001, 0.999), st.integers(0, 2**31 - 1))
def test_every_row_is_trained_on_or_held_out_and_never_both(rows: int, share: float, seed: int):
    split = split_rows(rows, share=share, seed=seed)
    assert sorted([*split.train, *split.heldout]) == list(range(rows))
    assert split.train
    assert split.heldout
    assert split == split_rows(rows, share=share, seed=seed)


def test_another_seed_holds_out_other_rows():
    assert split_rows(1000, share=0.1, seed=1).heldout != split_rows(1000, share=0.1, seed=2).heldout


def test_no_share_holds_nothing_out():
    assert list(split_rows(5, share=0, seed=1).train) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rows", "share"), [(1, 0.5), (0, 0.5), (10, 1.0), (10, -0.1)])
def test_what_cannot_be_split_is_refused(rows: int, share: float):
    with pytest.raises(ValueError, match=r"row|share"):
        split_rows(rows, share=share, seed=0)


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
