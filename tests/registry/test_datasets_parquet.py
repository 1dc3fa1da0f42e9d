"""Parquet datasets: types as JSON has them, and files that want to hurt."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.datasets import Limits
from services.registry.datasets.limits import limits_for
from services.registry.datasets.process import ProcessLimits, validate_apart
from tests.registry.dataset_files import GOOD, check, jsonl, parquet, three


def test_rows_come_back_with_their_types():
    file = parquet(three(3) | {"level": [1, 2, None], "tags": [["a"], [], None], "ok": [True, False, None]})
    checked = check(file, "parquet")
    assert checked.rows[0] == GOOD | {"level": 1, "tags": ["a"], "ok": True}
    assert checked.rows[2] == GOOD | {"level": None, "tags": None, "ok": None}


def test_names_are_found_without_case():
    columns = {name.upper(): values for name, values in three().items()}
    assert check(parquet(columns), "parquet").rows == [GOOD]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_every_kind_of_text_column_is_text(kind: pa.DataType):
    columns = {name: pa.array(values).cast(kind) for name, values in three(4).items()}
    assert check(parquet(columns), "parquet").rows == [GOOD] * 4


@pytest.mark.parametrize(
    ("value", "stored", "warning"),
    [
        (
            datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
            "2026-01-02T03:04:00+00:00",
            "type_as_text",
        ),
        (datetime.date(2026, 1, 2), "2026-01-02", "type_as_text"),
        (decimal.Decimal("1.50"), "1.50", "type_as_text"),
        (b"\xff\x00", "/wA=", "type_as_text"),
        (float("nan"), None, "nan_as_null"),
        ({"a": float("nan"), "b": 1}, {"a": None, "b": 1}, "nan_as_null"),
    ],
)
def test_types_that_json_lacks_are_stored_with_a_warning(value: Any, stored: Any, warning: str):
    checked = check(parquet(three() | {"x": [value]}), "parquet")
    assert checked.rows[0]["x"] == stored
    assert checked.warnings == [(None, "x", warning)]


def test_an_infinity_is_a_fault_of_its_row():
    checked = check(parquet(three(2) | {"x": [1.0, float("inf")]}), "parquet")
    assert checked.errors == [(1, "x", "not_finite")]


def test_a_missing_column_and_a_nested_text_column_are_faults():
    columns = three(2)
    del columns["ground_truth"]
    assert check(parquet(columns), "parquet").errors == [(0, "ground_truth", "missing_column")]
    assert check(parquet(three(1) | {"user_prompt": [[{"text": "u"}]]}), "parquet").errors == [
        (0, "user_prompt", "not_text")
    ]


def test_an_integer_ground_truth_becomes_text_with_a_warning():
    checked = check(parquet(three(2) | {"ground_truth": [13, 14]}), "parquet")
    assert [row["ground_truth"] for row in checked.rows] == ["13", "14"]
    assert checked.warnings == [(0, "ground_truth", "number_as_text")]


def test_damage_is_a_fault_wherever_it_is():
    file = parquet(three(1000) | {"n": list(range(1000))}, compression="none")
    assert check(b"not parquet", "parquet").errors == [(None, None, "invalid_parquet")]
    assert check(file[:-20], "parquet").errors == [(None, None, "invalid_parquet")]
    assert check(b"", "parquet").errors == [(None, None, "invalid_parquet")]
    assert check(parquet({name: [] for name in GOOD}), "parquet").errors == [(None, None, "no_rows")]


def test_ten_thousand_columns_are_refused():
    assert check(parquet(three() | {f"c{i}": [1] for i in range(10_000)}), "parquet").errors == [
        (None, None, "too_many_columns")
    ]


def test_columns_with_one_name_are_refused():
    table = pa.table([["a"], ["b"], ["c"]], names=["user_prompt", "ground_truth", "User_Prompt"])
    assert check(parquet(table), "parquet").errors == [(None, "User_Prompt", "duplicate_key")]


def test_a_row_group_that_unpacks_to_too_much_is_refused_by_its_footer():
    file = parquet(three(1) | {"x": ["y" * 1_000_000]}, use_dictionary=False)
    checked = check(file, "parquet", Limits(row_group_bytes=100_000))
    assert checked.errors == [(None, None, "too_large")]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_no_damage_makes_the_reader_fail(place: int, damage: bytes):
    file = bytearray(parquet(three(50) | {"n": list(range(50))}))
    start = place % len(file)
    file[start : start + len(damage)] = damage
    check(bytes(file), "parquet").report.model_dump_json()


def repeated(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))


async def test_a_bomb_of_memory_ends_its_own_process_and_not_the_service(tmp_path: Path):
    bomb = parquet(three(2000) | {"x": repeated("y" * 5_000_000, 2000)}, compression="zstd")
    assert len(bomb) < 100_000
    (tmp_path / "bomb").write_bytes(bomb)
    done = await validate_apart(tmp_path / "bomb", "parquet", tmp_path, ProcessLimits(memory=700 * 1024**2))
    assert not done.outcome.valid
    assert done.outcome.report.counts.get("too_large") == 1


def test_a_bomb_of_rows_stops_at_the_limit_of_the_canonical_form():
    bomb = parquet(three(2000) | {"x": repeated("y" * 100_000, 2000)}, compression="zstd")
    assert len(bomb) < 100_000
    checked = check(bomb, "parquet", Limits(content_bytes=10_000_000))
    assert checked.errors == [(99, None, "too_large")]


def test_the_canonical_form_may_be_a_hundred_times_the_file_and_always_two_gib():
    assert limits_for(1000).content_bytes == 2 * 1024**3
    assert limits_for(100 * 1024**2).content_bytes == 100 * 100 * 1024**2
    assert limits_for(5 * 1024**3).content_bytes == 20 * 1024**3


async def test_a_process_apart_gives_the_same_as_one_inside(tmp_path: Path):
    (tmp_path / "good.jsonl").write_bytes(jsonl(GOOD, GOOD))
    done = await validate_apart(tmp_path / "good.jsonl", "jsonl", tmp_path)
    inside = check(jsonl(GOOD, GOOD), "jsonl")
    assert done.outcome.report == inside.report
    assert done.content.read_bytes() == inside.content


async def test_a_validation_that_takes_too_long_is_ended(tmp_path: Path):
    (tmp_path / "good.jsonl").write_bytes(jsonl(GOOD))
    done = await validate_apart(tmp_path / "good.jsonl", "jsonl", tmp_path, ProcessLimits(seconds=0))
    assert not done.outcome.valid
