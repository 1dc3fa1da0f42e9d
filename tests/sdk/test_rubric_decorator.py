"""`@osmosis_rubric`, rule by rule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sdk.defining import define

ACCEPTED = {
    "the usual form": "def f(solution_str: str, ground_truth: str, extra_info: dict, **kwargs) -> float",
    "an optional truth": "def f(solution_str: str, ground_truth: str | None, extra_info: dict)",
    "typing's optional": "def f(solution_str: str, ground_truth: Optional[str], extra_info: dict)",
    "a free third annotation": "def f(solution_str: str, ground_truth: str, extra_info)",
    "a default for the third": "def f(solution_str: str, ground_truth: str, extra_info: dict[str, Any] = {})",
    "further parameters": "def f(solution_str: str, ground_truth: str, extra_info, data_source=None, *, k=1)",
}

REFUSED = {
    "two parameters": ("def f(solution_str: str, ground_truth: str)", "at least three"),
    "an optional answer": (
        "def f(solution_str: str | None, ground_truth: str, extra_info)",
        "'solution_str: str'",
    ),
    "a default answer": (
        "def f(solution_str: str = '', ground_truth: str = '', extra_info=None)",
        "a default",
    ),
    "a default truth": ("def f(solution_str: str, ground_truth: str = '', extra_info=None)", "a default"),
    "an integer truth": ("def f(solution_str: str, ground_truth: int, extra_info)", "str | None"),
    "an unannotated truth": ("def f(solution_str: str, ground_truth, extra_info)", "no annotation"),
    "another second name": ("def f(solution_str: str, truth: str, extra_info)", "'ground_truth'"),
    "another third name": ("def f(solution_str: str, ground_truth: str, info)", "'extra_info'"),
}

GOOD_CALL: dict[str, Any] = {"solution_str": "a", "ground_truth": "b", "extra_info": {}}
BAD_CALLS: dict[str, dict[str, Any]] = {
    "an answer that is no text": {**GOOD_CALL, "solution_str": 1},
    "no answer": {"ground_truth": "b", "extra_info": {}},
    "a truth that is no text": {**GOOD_CALL, "ground_truth": 7},
    "no truth": {"solution_str": "a", "extra_info": {}},
    "no extra info": {"solution_str": "a", "ground_truth": "b"},
}


@pytest.mark.parametrize("head", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("postponed", [False, True], ids=["plain", "postponed"])
def test_a_good_signature_is_accepted(head: str, postponed: bool) -> None:
    function = define("osmosis_rubric", head, "0.5", postponed=postponed)
    assert function(**GOOD_CALL) == 0.5
    assert function._osmosis_marker.kind == "rubric"


@pytest.mark.parametrize(("head", "says"), REFUSED.values(), ids=REFUSED)
def test_a_bad_signature_is_a_type_error_that_names_the_fault(head: str, says: str) -> None:
    with pytest.raises(TypeError) as error:
        define("osmosis_rubric", head, "0.5")
    assert says in str(error.value)


@pytest.mark.parametrize("keywords", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_a_type_error(keywords: dict[str, Any]) -> None:
    function = define("osmosis_rubric", ACCEPTED["a default for the third"], "0.5")
    with pytest.raises(TypeError):
        function(**keywords)


def test_it_may_be_called_by_place() -> None:
    assert define("osmosis_rubric", ACCEPTED["the usual form"], "0.5")("a", "b", {}) == 0.5


def test_no_reference_answer_is_none_and_extra_info_may_be_anything() -> None:
    function = define("osmosis_rubric", ACCEPTED["a free third annotation"], "0.5")
    assert function(solution_str="a", ground_truth=None, extra_info=None) == 0.5


def test_its_result_must_be_a_float() -> None:
    function = define("osmosis_rubric", ACCEPTED["the usual form"], "1")
    with pytest.raises(TypeError, match="must be a float"):
        function(**GOOD_CALL)


def test_data_source_is_dropped_where_it_has_no_place() -> None:
    function = define("osmosis_rubric", ACCEPTED["an optional truth"], "0.5")
    assert function(**GOOD_CALL, data_source="web") == 0.5


def test_an_async_rubric_is_checked_at_call_and_result() -> None:
    function = define("osmosis_rubric", "async " + ACCEPTED["the usual form"], "1")
    with pytest.raises(TypeError, match="must be a float"):
        asyncio.run(function(**GOOD_CALL))
    with pytest.raises(TypeError, match="'solution_str'"):
        asyncio.run(function(**{**GOOD_CALL, "solution_str": 1}))
