"""Builders: dataset files in memory, and their validation."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from libs.common.contracts.datasets import DatasetFormat, DatasetReport
from services.registry.datasets import Limits, RowReader, validate

GOOD: dict[str, Any] = {"system_prompt": "Be brief.", "user_prompt": "Six plus seven?", "ground_truth": "13"}


@dataclass
class Checked:
    report: DatasetReport
    rows: list[dict[str, Any]]
    preview: list[dict[str, Any]]
    content: bytes

    @property
    def errors(self) -> list[tuple[int | None, str | None, str]]:
        return [(error.row, error.field, error.kind) for error in self.report.errors]

    @property
    def warnings(self) -> list[tuple[int | None, str | None, str]]:
        return [(warning.row, warning.field, warning.kind) for warning in self.report.warnings]


def check(file: bytes, format: DatasetFormat, limits: Limits | None = None) -> Checked:
    content, index = io.BytesIO(), io.BytesIO()
    outcome = validate(io.BufferedReader(io.BytesIO(file)), format, content, index, limits)
    rows = []
    if outcome.valid:
        reader = RowReader(content, index)
        rows = [reader.row(number) for number in range(reader.rows)]
    return Checked(outcome.report, rows, outcome.preview, content.getvalue())


def good(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def jsonl(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(columns: dict[str, Any] | pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, out, **options)
    return out.getvalue()


def three(rows: int = 1) -> dict[str, list[str]]:
    return {name: [text] * rows for name, text in GOOD.items()}
