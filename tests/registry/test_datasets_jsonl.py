"""JSONL datasets: what is accepted, what each fault says."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.datasets import Limits, validate
from tests.registry.dataset_files import GOOD, check, good, jsonl


def test_a_good_file_becomes_rows_with_extra_columns_in_order():
    checked = check(jsonl(good(level=1, tags=["sum"]), good(z=None)), "jsonl")
    assert checked.errors == []
    assert checked.rows == [good(level=1, tags=["sum"]), good(z=None)]
    assert list(checked.rows[0]) == ["system_prompt", "user_prompt", "ground_truth", "level", "tags"]
    assert checked.report.columns == ["system_prompt", "user_prompt", "ground_truth", "level", "tags", "z"]
    assert checked.report.statistics["characters"]["user_prompt"] == {
        "total": 30,
        "min": 15,
        "max": 15,
        "mean": 15.0,
    }


def test_required_names_are_found_without_case_and_others_keep_theirs():
    row = {"System_Prompt": "s", "USER_PROMPT": "u", "Ground_Truth": "g", "Level": 1}
    assert check(jsonl(row), "jsonl").rows == [
        {"system_prompt": "s", "user_prompt": "u", "ground_truth": "g", "Level": 1}
    ]


def test_blank_lines_are_skipped_and_do_not_count_as_rows():
    file = b"\n" + jsonl(GOOD) + b"  \r\n\n" + b'{"user_prompt": 1}\n'
    checked = check(file, "jsonl")
    assert checked.report.rows == 2
    assert {row for row, _, _ in checked.errors} == {1}
    assert "line 4" not in checked.report.errors[0].message


@pytest.mark.parametrize(
    ("changes", "field", "kind"),
    [
        ({"user_prompt": 42}, "user_prompt", "not_text"),
        ({"user_prompt": None}, "user_prompt", "empty"),
        ({"user_prompt": ""}, "user_prompt", "empty"),
        ({"user_prompt": " \n"}, "user_prompt", "empty"),
        ({"user_prompt": ["a"]}, "user_prompt", "not_text"),
        ({"ground_truth": True}, "ground_truth", "not_text"),
        ({"ground_truth": {"a": 1}}, "ground_truth", "not_text"),
        ({"ground_truth": None}, "ground_truth", "empty"),
        ({"system_prompt": 3}, "system_prompt", "not_text"),
    ],
)
def test_a_value_that_is_no_text_names_row_and_field(changes: dict[str, Any], field: str, kind: str):
    assert check(jsonl(GOOD, good(**changes)), "jsonl").errors == [(1, field, kind)]


def test_a_missing_column_names_row_and_field():
    row = {"system_prompt": "s", "user_prompt": "u"}
    checked = check(jsonl(GOOD, GOOD, row), "jsonl")
    assert checked.errors == [(2, "ground_truth", "missing_column")]
    assert checked.report.counts == {"missing_column": 1}


def test_faults_of_a_row_come_in_order_of_column():
    checked = check(jsonl({"ground_truth": None, "user_prompt": 1, "system_prompt": 2}), "jsonl")
    assert [field for _, field, _ in checked.errors] == ["system_prompt", "user_prompt", "ground_truth"]


@pytest.mark.parametrize(
    "row", [good(system_prompt=""), good(system_prompt=None), {k: GOOD[k] for k in list(GOOD)[1:]}]
)
def test_no_system_prompt_is_a_warning_and_an_empty_text(row: dict[str, Any]):
    checked = check(jsonl(row, row), "jsonl")
    assert checked.rows[0]["system_prompt"] == ""
    assert checked.warnings == [(0, "system_prompt", "no_system_prompt")]
    assert "(2 rows)" in checked.report.warnings[0].message


@pytest.mark.parametrize("number", ["42", "1.50", "-0", "1E5", "123456789012345678901234567890"])
def test_a_number_as_ground_truth_becomes_the_text_that_was_written(number: str):
    file = f'{{"system_prompt": "s", "user_prompt": "u", "ground_truth": {number}}}\n'.encode()
    checked = check(file, "jsonl")
    assert checked.rows[0]["ground_truth"] == number
    assert checked.warnings == [(0, "ground_truth", "number_as_text")]


LINE = b'{"system_prompt": "s", "user_prompt": "u", "ground_truth": "g", "x": %s}\n'


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b'{"user_prompt": "u"\n', (0, None, "invalid_json")),
        (b"[1, 2]\n", (0, None, "not_an_object")),
        (b"{} {}\n", (0, None, "invalid_json")),
        (LINE % b"NaN", (0, None, "not_finite")),
        (LINE % b"-Infinity", (0, None, "not_finite")),
        (LINE % b"1e400", (0, "x", "not_finite")),
        (LINE % b'[1, {"y": 1e999}]', (0, "x", "not_finite")),
        (LINE % (b"9" * 5000), (0, None, "invalid_json")),
        (LINE % b'"\\ud800"', (0, "x", "invalid_text")),
        (LINE % b'"\xff"', (0, None, "encoding")),
        (LINE % b'"\xed\xa0\x80"', (0, None, "encoding")),
        (LINE % (b"[" * 100 + b"]" * 100), (0, "x", "too_deep")),
        (LINE % (b"[" * 100_000 + b"]" * 100_000), (0, None, "too_deep")),
        (b'{"user_prompt": "a", "user_prompt": "b"}\n', (0, "user_prompt", "duplicate_key")),
        (LINE % b'{"k": 1, "k": 2}', (0, "k", "duplicate_key")),
        (
            b'{"user_prompt": "a", "User_Prompt": "b", "ground_truth": "g"}\n',
            (0, "user_prompt", "duplicate_key"),
        ),
        (b"", (None, None, "no_rows")),
        (b"\n\n", (None, None, "no_rows")),
        ("{}".encode("utf-16"), (None, None, "encoding")),
        ("{}\n".encode("utf-16-le"), (None, None, "encoding")),
        ("{}\n".encode("utf-32"), (None, None, "encoding")),
        (b"\x1f\x8b\x08\0\0\0\0\0", (None, None, "encoding")),
        (b"PAR1\0\0\0\0", (None, None, "encoding")),
    ],
)
def test_hostile_files_get_a_clear_error(file: bytes, expected: tuple[int | None, str | None, str]):
    assert check(file, "jsonl").errors[0] == expected


def test_a_byte_order_mark_is_dropped_with_a_warning():
    checked = check(b"\xef\xbb\xbf" + jsonl(GOOD), "jsonl")
    assert checked.rows == [GOOD]
    assert checked.warnings == [(None, None, "byte_order_mark")]


def test_crlf_and_a_missing_last_line_end_are_fine():
    file = jsonl(GOOD, good(user_prompt="a\r\nb")).replace(b"\n", b"\r\n").rstrip()
    assert check(file, "jsonl").rows == [GOOD, good(user_prompt="a\r\nb")]


def test_one_broken_line_does_not_hide_the_others():
    file = jsonl(GOOD) + b"{broken\n" + jsonl(good(user_prompt=""), GOOD)
    checked = check(file, "jsonl")
    assert checked.errors == [(1, None, "invalid_json"), (2, "user_prompt", "empty")]
    assert "line 2" in checked.report.errors[0].message
    assert checked.report.rows == 4


def test_the_first_hundred_errors_are_shown_and_all_are_counted():
    checked = check(jsonl(*[good(user_prompt="", ground_truth="")] * 150), "jsonl")
    assert len(checked.report.errors) == 100
    assert checked.report.counts == {"empty": 300}
    assert checked.errors[-1] == (49, "ground_truth", "empty")


def test_ten_thousand_columns_are_refused():
    wide = good(**{f"c{i}": i for i in range(10_000)})
    assert check(jsonl(wide), "jsonl").errors == [(0, None, "too_many_columns")]


def test_rows_with_ever_new_columns_are_refused():
    rows = [good(**{f"c{i}_{j}": 1 for j in range(200)}) for i in range(20)]
    checked = check(jsonl(*rows), "jsonl")
    assert checked.errors[0] == (5, None, "too_many_columns")
    assert len(checked.report.columns) <= 1003


def test_a_line_over_the_limit_is_passed_over_and_the_next_row_is_read():
    limits = Limits(row_bytes=1000)
    file = jsonl(good(x="y" * 5000), good(user_prompt=""), GOOD)
    checked = check(file, "jsonl", limits)
    assert checked.errors == [(0, None, "row_too_large"), (1, "user_prompt", "empty")]


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_the_limit_of_a_row_is_exact(spare: int):
    line = json.dumps(GOOD, separators=(",", ":")).encode() + b"\n"
    checked = check(line * 2, "jsonl", Limits(row_bytes=len(line) + spare))
    assert (checked.errors == []) == (spare >= 0)


def test_a_line_of_200_megabytes_needs_little_memory():
    class Raw(io.RawIOBase):
        def __init__(self) -> None:
            self.left, self.at = 200_000_000, 0

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            assert (offset, whence) == (0, 0)
            self.left, self.at = 200_000_000, 0
            return 0

        def tell(self) -> int:
            return self.at

        def readinto(self, buffer: Any) -> int:
            size = min(len(buffer), self.left)
            buffer[:size] = b"x" * size
            self.left -= size
            self.at += size
            return size

    tracemalloc.start()
    outcome = validate(io.BufferedReader(Raw()), "jsonl", io.BytesIO(), io.BytesIO())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [error.kind for error in outcome.report.errors] == ["row_too_large"]
    assert "200000000 bytes" in outcome.report.errors[0].message
    assert peak < 32 * 1024 * 1024


def test_the_preview_shows_five_rows_with_long_texts_cut():
    checked = check(jsonl(*[good(user_prompt="u" * 2000)] * 9), "jsonl")
    assert len(checked.preview) == 5
    assert checked.preview[0]["user_prompt"] == "u" * 500 + "…"


def test_nothing_is_written_after_the_first_fault():
    checked = check(jsonl(GOOD, good(user_prompt=""), GOOD, GOOD), "jsonl")
    assert checked.content.count(b"\n") == 1


def test_a_dataset_over_its_limit_is_refused():
    checked = check(jsonl(*[GOOD] * 20), "jsonl", Limits(rows=10))
    assert checked.errors == [(10, None, "too_large")]


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda value: value.strip())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(text.filter(lambda name: name.lower() not in GOOD), json_values, max_size=4)
any_rows = st.lists(
    st.builds(
        lambda texts, extra: dict(zip(GOOD, texts, strict=True)) | extra, st.tuples(text, text, text), extras
    ),
    min_size=1,
    max_size=5,
)


@given(any_rows, st.booleans(), st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
def test_every_good_row_reads_back_as_it_was(rows: list[dict[str, Any]], ascii_only: bool, end: bytes):
    file = b"".join(json.dumps(row, ensure_ascii=ascii_only).encode() + end for row in rows)
    assert check(file, "jsonl").rows == rows


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_fail(file: bytes):
    checked = check(file, "jsonl")
    assert checked.report.errors or checked.rows
    checked.report.model_dump_json()


@given(
    st.lists(
        st.sampled_from([b"{", b"}", b"[", b'"user_prompt"', b":", b",", b'"\\ud800"', b"1e999", b"\n"]),
        max_size=30,
    )
)
def test_no_tokens_make_the_parser_fail(tokens: list[bytes]):
    check(b"".join(tokens), "jsonl").report.model_dump_json()
