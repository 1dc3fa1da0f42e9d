"""A sandbox's report is data of an untrusted peer; a verdict is a finite value or an error, never both."""

from __future__ import annotations

import json
import math
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rewards.domain.verdicts import component_of, no_value, read_report, weighted_sum
from services.rewards.sandbox import Limits

LIMITS = Limits(output_bytes=10)


def report(answer: str, **fields: Any) -> dict[str, Any]:
    return {
        "answer": answer,
        "output": "",
        "printed": 0,
        "timed_out": False,
        "status": 0,
        "seconds": 0.1,
        **fields,
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=10,
)


@given(st.text() | json_values.map(json.dumps))
def test_whatever_is_answered_the_verdict_has_a_finite_value_or_an_error(answer: str) -> None:
    verdict = read_report(report(answer), LIMITS)
    assert (verdict.value is None) == (verdict.error is not None) == (verdict.error_kind is not None)
    assert verdict.value is None or math.isfinite(verdict.value)


@given(st.dictionaries(st.sampled_from([*report(""), "import_error"]), json_values))
def test_whatever_is_reported_there_is_a_verdict(wire: dict[str, Any]) -> None:
    verdict = read_report(wire, LIMITS)
    assert (verdict.value is None) == (verdict.error is not None)


@pytest.mark.parametrize(
    "answer",
    ["", "nonsense", "[1.0]", '{"value": true}', '{"value": "1.0"}', '{"value": NaN}', '{"value": Infinity}',
     '{"value": 1.0}{"value": 2.0}', '{"value": 1e999}', '{"kind": "made-up", "error": "x"}', "[" * 60_000],
)  # fmt: skip
def test_an_unexpected_answer_is_a_crash(answer: str) -> None:
    assert read_report(report(answer), LIMITS).error_kind == "crash"


def test_an_answer_over_the_limit_is_not_read() -> None:
    text = json.dumps({"value": 1.0, "more": "x" * LIMITS.result_bytes})
    assert "over 65536 bytes" in (read_report(report(text), LIMITS).error or "")


def test_how_a_process_was_ended_is_said() -> None:
    assert read_report(report("", status=signal.SIGXCPU), LIMITS).error_kind == "timeout"
    assert read_report(report("", status=signal.SIGKILL, seconds=11), LIMITS).error_kind == "timeout"
    assert "SIGSEGV" in (read_report(report("", status=signal.SIGSEGV), LIMITS).error or "")
    assert read_report(report('{"value": 1.0}', timed_out=True), LIMITS).error_kind == "timeout"


def test_cut_output_says_how_much_there_was() -> None:
    verdict = read_report(report('{"value": 1.0}', output="0123456789", printed=500), LIMITS)
    assert verdict.output == "0123456789\n[cut: 500 bytes were printed, the first 10 are kept]"


def test_the_reward_is_the_weighted_sum_and_absent_when_a_part_is() -> None:
    good = read_report(report('{"value": 2.0}'), LIMITS)
    bad = no_value("exception", "ValueError: no")
    assert weighted_sum([component_of("a", 0.5, good), component_of("b", -1.0, good)]) == -1.0
    assert weighted_sum([component_of("a", 0.5, good), component_of("b", 0.0, bad)]) is None
    assert weighted_sum([]) is None
    assert weighted_sum([component_of("a", 1e308, read_report(report('{"value": 1e308}'), LIMITS))]) is None
    assert component_of("b", 1.0, bad).error == "exception: ValueError: no"
