"""CSV datasets: every value is text, ragged rows are seen, nothing is swallowed."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.datasets import Limits
from tests.registry.dataset_files import check

HEADER = b"system_prompt,user_prompt,ground_truth,level\n"


def test_every_value_is_text():
    checked = check(HEADER + b"s,u,13,1\n", "csv")
    assert checked.rows == [{"system_prompt": "s", "user_prompt": "u", "ground_truth": "13", "level": "1"}]


def test_quotes_commas_and_line_ends_inside_values_are_kept():
    checked = check(HEADER + b's,"a, ""b""\r\nc",g,\r\n', "csv")
    assert checked.rows[0]["user_prompt"] == 'a, "b"\r\nc'
    assert checked.rows[0]["level"] == ""


def test_a_row_with_more_fields_than_the_header_is_a_fault_of_that_row_alone():
    checked = check(HEADER + b"s,u,g,1,extra\ns,,g,1\ns,u,g,1\n", "csv")
    assert checked.errors == [(0, None, "ragged_row"), (1, "user_prompt", "empty")]
    assert checked.report.rows == 3


def test_a_row_with_fewer_fields_has_nulls_and_fails_on_required_columns_alone():
    assert check(HEADER + b"s,u,g\n", "csv").rows[0]["level"] is None
    assert check(HEADER + b"s,u\n", "csv").errors == [(0, "ground_truth", "empty")]


def test_a_missing_column_is_said_once_with_the_columns_found():
    checked = check(b"system_prompt,answer\na,b\nc,d\n", "csv")
    assert checked.errors == [(0, "user_prompt", "missing_column"), (0, "ground_truth", "missing_column")]
    assert "answer" in checked.report.errors[0].message


def test_without_a_system_prompt_column_rows_have_none():
    checked = check(b"user_prompt,ground_truth\nu,g\n", "csv")
    assert checked.rows == [{"system_prompt": "", "user_prompt": "u", "ground_truth": "g"}]
    assert checked.warnings == [(0, "system_prompt", "no_system_prompt")]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"", (None, None, "no_rows")),
        (HEADER, (None, None, "no_rows")),
        (b"user_prompt,ground_truth,user_prompt\n", (None, "user_prompt", "duplicate_key")),
        (b"user_prompt,ground_truth,User_Prompt\n", (None, "User_Prompt", "duplicate_key")),
        (b"user_prompt,ground_truth,\n", (None, None, "column_name")),
        (b",".join(b"c%d" % i for i in range(10_000)) + b"\n", (None, None, "too_many_columns")),
        (HEADER + b's,"u,g,1\ns,u,g,1\n', (0, None, "invalid_csv")),
        (HEADER + b's,"u"x,g,1\n', (0, None, "invalid_csv")),
        (HEADER + b"s,u,g,1\rs,u,g,2\n", (0, None, "invalid_csv")),
        (HEADER + b"s,\xff,g,1\n", (0, None, "encoding")),
        ("user_prompt\n".encode("utf-16"), (None, None, "encoding")),
        (b"PK\x03\x04rest", (None, None, "encoding")),
    ],
)
def test_hostile_files_get_a_clear_error(file: bytes, expected: tuple[int | None, str | None, str]):
    assert check(file, "csv").errors[0] == expected


def test_a_byte_order_mark_and_crlf_are_fine():
    checked = check(b"\xef\xbb\xbf" + (HEADER + b"s,u,g,1\n").replace(b"\n", b"\r\n"), "csv")
    assert checked.rows[0]["system_prompt"] == "s"
    assert checked.warnings == [(None, None, "byte_order_mark")]


def test_an_unclosed_quote_stops_at_the_limit_of_a_row():
    file = HEADER + b's,"' + b"text\n" * 1000
    checked = check(file, "csv", Limits(row_bytes=1000))
    assert checked.errors == [(0, None, "row_too_large")]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1).filter(
    str.strip
)


@given(
    st.lists(
        st.tuples(
            texts, texts, texts, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_a_csv_writer_wrote_reads_back(rows: list[tuple[str, str, str, str]]):
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["system_prompt", "user_prompt", "ground_truth", "note"])
    writer.writerows(rows)
    assert [tuple(row.values()) for row in check(out.getvalue().encode(), "csv").rows] == rows


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_fail(file: bytes):
    for start in (b"", HEADER):
        check(start + file, "csv").report.model_dump_json()
