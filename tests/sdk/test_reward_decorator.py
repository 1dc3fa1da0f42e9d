"""`@osmosis_reward`, rule by rule of the table in the workspace repositories' description."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Optional

import pytest

from tests.sdk.defining import define

ACCEPTED = {
    "the usual form": "def f(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float",
    "no kwargs": "def f(solution_str: str, ground_truth: str, extra_info: dict = None) -> float",
    "dict or None": "def f(solution_str: str, ground_truth: str, extra_info: dict | None = None)",
    "optional dict": "def f(solution_str: str, ground_truth: str, extra_info: Optional[dict] = None)",
    "an empty dict as default": "def f(solution_str: str, ground_truth: str, extra_info: dict = {})",
    "a data source": "def f(solution_str: str, ground_truth: str, extra_info: dict = None, data_source=None)",
    "a keyword-only parameter": "def f(solution_str: str, ground_truth: str, extra_info: dict = None, *, k=1)",
    "any return annotation": "def f(solution_str: str, ground_truth: str, extra_info: dict = None) -> int",
    "quoted annotations": "def f(solution_str: 'str', ground_truth: 'str', extra_info: 'dict | None' = None)",
}

REFUSED = {
    "two parameters": ("def f(solution_str: str, ground_truth: str)", "at least three"),
    "no annotation": ("def f(solution_str, ground_truth: str, extra_info: dict = None)", "'solution_str'"),
    "an optional answer": (
        "def f(solution_str: Optional[str], ground_truth: str, extra_info: dict = None)",
        "'solution_str: str'",
    ),
    "another second name": (
        "def f(solution_str: str, truth: str, extra_info: dict = None)",
        "'ground_truth'",
    ),
    "an optional truth": (
        "def f(solution_str: str, ground_truth: Optional[str], extra_info: dict = None)",
        "'ground_truth: str'",
    ),
    "an unannotated truth": (
        "def f(solution_str: str, ground_truth, extra_info: dict = None)",
        "no annotation",
    ),
    "another third name": ("def f(solution_str: str, ground_truth: str, extra: dict = None)", "'extra_info'"),
    "kwargs for the third": ("def f(solution_str: str, ground_truth: str, **kwargs)", "'extra_info'"),
    "a dict with its inside": (
        "def f(solution_str: str, ground_truth: str, extra_info: dict[str, Any] = None)",
        "dict[str, ",
    ),
    "an unannotated third": ("def f(solution_str: str, ground_truth: str, extra_info=None)", "no annotation"),
    "no default": ("def f(solution_str: str, ground_truth: str, extra_info: dict)", "no default"),
    "an unknown name": ("def f(solution_str: 'Strng', ground_truth: str, extra_info: dict = None)", "Strng"),
}

FREE = {
    "the conversation": "def f(messages, ground_truth, metadata)",
    "one parameter": "def f(anything)",
    "none at all": "def f()",
}


@pytest.mark.parametrize("head", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("postponed", [False, True], ids=["plain", "postponed"])
def test_a_good_signature_is_accepted(head: str, postponed: bool) -> None:
    function = define("osmosis_reward", head, "0.5", postponed=postponed)
    assert function(solution_str="a", ground_truth="b", extra_info={}) == 0.5
    assert (function._osmosis_marker.kind, function._osmosis_marker.style) == ("reward", "classic")


@pytest.mark.parametrize(("head", "says"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("postponed", [False, True], ids=["plain", "postponed"])
def test_a_bad_signature_is_a_type_error_that_names_the_fault(head: str, says: str, postponed: bool) -> None:
    with pytest.raises(TypeError) as error:
        define("osmosis_reward", head, "0.5", postponed=postponed)
    assert says in str(error.value)


@pytest.mark.parametrize("head", FREE.values(), ids=FREE)
def test_a_function_of_another_style_is_left_alone(head: str) -> None:
    function = define("osmosis_reward", head, "'anything'")
    assert function._osmosis_marker.style == "free"
    names = list(inspect.signature(function).parameters)
    assert function(**dict.fromkeys(names)) == "anything"


@pytest.mark.parametrize("result", ["1", "True", "None", "'1.0'", "{}", "[1.0]"])
def test_a_result_that_is_not_a_float_is_a_type_error(result: str) -> None:
    function = define("osmosis_reward", ACCEPTED["no kwargs"], result)
    with pytest.raises(TypeError, match="must be a float"):
        function(solution_str="a", ground_truth="b")


def test_a_subclass_of_float_passes() -> None:
    function = define("osmosis_reward", ACCEPTED["no kwargs"], "type('F', (float,), {})(0.25)")
    assert function(solution_str="a", ground_truth="b") == 0.25


def test_nan_passes_the_decorator_and_is_the_platforms_to_refuse() -> None:
    function = define("osmosis_reward", ACCEPTED["no kwargs"], "float('nan')")
    assert function(solution_str="a", ground_truth="b") != 0


def test_an_async_function_stays_one_and_is_checked_too() -> None:
    good = define("osmosis_reward", "async " + ACCEPTED["no kwargs"], "0.5")
    bad = define("osmosis_reward", "async " + ACCEPTED["no kwargs"], "1")
    assert inspect.iscoroutinefunction(good)
    assert asyncio.run(good(solution_str="a", ground_truth="b")) == 0.5
    with pytest.raises(TypeError, match="must be a float"):
        asyncio.run(bad(solution_str="a", ground_truth="b"))


def test_data_source_is_dropped_only_where_it_has_no_place() -> None:
    plain = define("osmosis_reward", ACCEPTED["no kwargs"], "0.5")
    named = define("osmosis_reward", ACCEPTED["a data source"], "1.0 if data_source == 'web' else 0.0")
    open_ended = define("osmosis_reward", ACCEPTED["the usual form"], "float(len(kwargs))")
    call: dict[str, Any] = {"solution_str": "a", "ground_truth": "b", "data_source": "web"}
    assert plain(**call) == 0.5
    assert named(**call) == 1.0
    assert open_ended(**call) == 1.0


def test_any_other_unexpected_keyword_is_an_ordinary_type_error() -> None:
    function = define("osmosis_reward", ACCEPTED["no kwargs"], "0.5")
    with pytest.raises(TypeError, match="unexpected keyword"):
        function(solution_str="a", ground_truth="b", colour="red")


def test_the_function_keeps_its_name_docstring_and_signature() -> None:
    import osmosis_ai

    def scored(solution_str: str, ground_truth: str, extra_info: Optional[dict] = None) -> float:  # noqa: UP045
        """Says so."""
        return 1.0

    decorated = osmosis_ai.osmosis_reward(scored)
    assert (decorated.__name__, decorated.__doc__) == ("scored", "Says so.")
    assert list(inspect.signature(decorated).parameters) == ["solution_str", "ground_truth", "extra_info"]


def test_only_the_standard_library_is_imported() -> None:
    import subprocess
    import sys
    from pathlib import Path

    sdk = Path(__file__).parents[2] / "libs" / "sdk"
    code = f"import sys; sys.path.insert(0, {str(sdk)!r}); import osmosis_ai; print(osmosis_ai.__version__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().count(".") == 2
