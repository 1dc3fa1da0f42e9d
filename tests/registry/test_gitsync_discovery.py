"""What is found in a repository, and what is said about the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.gitsync import Discovered, discover

HEAD = "from osmosis_ai import osmosis_reward, osmosis_rubric\n"
CLASSIC = "(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs)"


def found(discovered: Discovered) -> list[tuple[str, str, int]]:
    return [(finding.kind, finding.name, finding.line) for finding in discovered.findings]


def wrong(discovered: Discovered) -> list[tuple[str | None, int | None]]:
    return [(error.file, error.line) for error in discovered.errors if error.severity == "error"]


def reward(source: str, path: str = "reward_fn/compute_reward.py") -> Discovered:
    return discover({path: source.encode()})


@pytest.mark.parametrize(
    "source",
    [
        f"from osmosis_ai import osmosis_reward\n@osmosis_reward\ndef f{CLASSIC}: ...",
        f"from osmosis_ai import osmosis_reward as scored\n@scored\ndef f{CLASSIC}: ...",
        f"import osmosis_ai\n@osmosis_ai.osmosis_reward\ndef f{CLASSIC}: ...",
        f"import osmosis_ai as o\n@o.osmosis_reward\ndef f{CLASSIC}: ...",
        f"import osmosis_ai.reward as r\n@r.osmosis_reward\ndef f{CLASSIC}: ...",
        f"from .shared import osmosis_reward as r\n@r\ndef f{CLASSIC}: ...",
        f"from osmosis_ai import *\n@osmosis_reward\ndef f{CLASSIC}: ...",
        f"import osmosis_ai\nr = osmosis_ai.osmosis_reward\n@r\nasync def f{CLASSIC}: ...",
        f"try:\n  from osmosis_ai import osmosis_reward as r\nexcept ImportError:\n  raise\n@r\n@other\ndef f{CLASSIC}: ...",
        f"if True:\n  from osmosis_ai import osmosis_reward\n  @osmosis_reward\n  def f{CLASSIC}: ...",
    ],
)
def test_every_form_of_the_decorator_is_seen(source: str):
    discovered = reward(source)
    assert [(kind, name) for kind, name, _ in found(discovered)] == [("reward", "compute_reward.f")]
    assert discovered.errors == []


@pytest.mark.parametrize(
    "source",
    [
        f"def f{CLASSIC}: ...",
        f"@other\ndef f{CLASSIC}: ...",
        f"@other.osmosis_reward\ndef f{CLASSIC}: ...",
        f"class A:\n  @osmosis_reward\n  def f{CLASSIC}: ...",
        f"if __name__ == '__main__':\n  @osmosis_reward\n  def f{CLASSIC}: ...",
    ],
)
def test_other_functions_are_not_found(source: str):
    assert found(reward(source)) == []


def test_several_functions_and_kinds_come_by_file_and_line():
    discovered = discover(
        {
            "reward_rubric/tone.py": f"{HEAD}@osmosis_rubric\ndef polite(solution_str: str, ground_truth: str | None, extra_info: dict): ...".encode(),
            "reward_fn/b.py": f"{HEAD}@osmosis_reward\ndef z{CLASSIC}: ...\n@osmosis_reward\ndef a(messages): ...".encode(),
            "reward_fn/deep/c.py": b"syntax error(",
        }
    )
    assert found(discovered) == [("reward", "b.z", 3), ("reward", "b.a", 5), ("rubric", "tone.polite", 3)]
    assert discovered.usable


def test_the_docstring_is_the_description():
    discovered = reward(f'{HEAD}@osmosis_reward\ndef f{CLASSIC}:\n    """One.\n\n    Two.\n    """')
    assert discovered.findings[0].description == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("kind", "parameters", "accepted"),
    [
        ("reward", "solution_str: str, ground_truth: str, extra_info: dict = None", True),
        ("reward", "solution_str: str, ground_truth: str, extra_info: dict | None = None, data_source=None", True),
        ("reward", "solution_str: str, ground_truth: str, extra_info: Optional[dict] = {}", True),
        ("reward", "solution_str: str, ground_truth: str, extra_info: typing.Union[dict, None] = None", True),
        ("reward", "solution_str: 'str', ground_truth: 'str', extra_info: 'dict | None' = None", True),
        ("reward", "solution_str: Text, ground_truth: Text, extra_info: Info = None", True),
        ("reward", "solution_str: str, ground_truth: str, *, extra_info: dict = None", True),
        ("reward", "messages, ground_truth, metadata", True),
        ("reward", "", True),
        ("reward", "solution_str: str, ground_truth: str", False),
        ("reward", "solution_str, ground_truth: str, extra_info: dict = None", False),
        ("reward", "solution_str: Optional[str], ground_truth: str, extra_info: dict = None", False),
        ("reward", "solution_str: str | None, ground_truth: str, extra_info: dict = None", False),
        ("reward", "solution_str: str, answer: str, extra_info: dict = None", False),
        ("reward", "solution_str: str, ground_truth: Optional[str], extra_info: dict = None", False),
        ("reward", "solution_str: str, ground_truth, extra_info: dict = None", False),
        ("reward", "solution_str: str, ground_truth: int, extra_info: dict = None", False),
        ("reward", "solution_str: str, ground_truth: str, extra_info: dict[str, Any] = None", False),
        ("reward", "solution_str: str, ground_truth: str, extra_info=None", False),
        ("reward", "solution_str: str, ground_truth: str, extra_info: dict", False),
        ("reward", "solution_str: str, /, ground_truth: str, extra_info: dict = None", False),
        ("reward", "solution_str: str, ground_truth: str, *args, extra_info: dict = None", False),
        ("rubric", "solution_str: str, ground_truth: str, extra_info", True),
        ("rubric", "solution_str: str, ground_truth: Optional[str], extra_info: dict[str, Any] = None, **kwargs", True),
        ("rubric", "solution_str: str, ground_truth: str | None, extra_info: dict", True),
        ("rubric", "solution_str: str, ground_truth, extra_info", False),
        ("rubric", "solution_str: str = '', ground_truth: str = '', extra_info: dict = None", False),
        ("rubric", "solution_str: str | None, ground_truth: str, extra_info", False),
        ("rubric", "solution_str: str, ground_truth: str, metadata", False),
    ],
)  # fmt: skip
def test_signatures_are_judged_as_the_decorators_judge_them(kind: str, parameters: str, accepted: bool):
    folder = "reward_fn" if kind == "reward" else "reward_rubric"
    discovered = reward(f"{HEAD}@osmosis_{kind}\ndef f({parameters}): ...", f"{folder}/a.py")
    assert bool(found(discovered)) == accepted
    assert discovered.usable == accepted
    assert accepted or discovered.errors[0].line == 3


def test_a_fault_names_the_line_of_its_parameter():
    source = f"{HEAD}@osmosis_reward\ndef f(\n    solution_str: str,\n    ground_truth: int,\n    extra_info: dict = None,\n): ..."
    (error,) = reward(source).errors
    assert (error.file, error.line) == ("reward_fn/compute_reward.py", 5)
    assert "'int'" in error.message
    assert "ground_truth: str" in error.message


def test_a_syntax_error_does_not_hide_the_other_files():
    discovered = discover(
        {
            "reward_fn/bad.py": b"def f(:\n",
            "reward_fn/good.py": f"{HEAD}@osmosis_reward\ndef f{CLASSIC}: ...".encode(),
        }
    )
    assert found(discovered) == [("reward", "good.f", 3)]
    assert wrong(discovered) == [("reward_fn/bad.py", 1)]
    assert not discovered.usable


@pytest.mark.parametrize(
    "content",
    [b"\0", b"\xff", b"# coding: nonsense\n", b"(" * 5000, b"-" * 100_000 + b"1", b"a" + b".a" * 100_000],
)
def test_files_that_hurt_a_parser_are_reported(content: bytes):
    assert (
        wrong(discover({"reward_fn/bad.py": content}))[0][0] == "reward_fn/bad.py"
        or discover({"reward_fn/bad.py": content}).errors
    )


def test_a_decorator_with_parentheses_is_reported():
    assert wrong(reward(f"{HEAD}@osmosis_reward()\ndef f{CLASSIC}: ...")) == [
        ("reward_fn/compute_reward.py", 2)
    ]


def test_a_decorator_in_the_other_folder_is_a_warning():
    discovered = discover({"reward_rubric/a.py": f"{HEAD}@osmosis_reward\ndef f{CLASSIC}: ...".encode()})
    assert found(discovered) == []
    assert discovered.errors[0].severity == "warning"


def test_a_function_defined_twice_counts_once():
    discovered = reward(f"{HEAD}@osmosis_reward\ndef f{CLASSIC}: ...\n@osmosis_reward\ndef f{CLASSIC}: ...")
    assert found(discovered) == [("reward", "compute_reward.f", 5)]
    assert discovered.errors[0].severity == "warning"


def test_one_name_for_a_reward_and_a_rubric_is_reported():
    discovered = discover(
        {
            "reward_fn/a.py": f"{HEAD}@osmosis_reward\ndef f{CLASSIC}: ...".encode(),
            "reward_rubric/a.py": f"{HEAD}@osmosis_rubric\ndef f(messages): ...".encode(),
        }
    )
    assert wrong(discovered) == [("reward_rubric/a.py", 3)]


TOOLS = b'''from server import mcp


@mcp.tool
def add(a: float, b: float) -> float:
    """Add."""


@mcp.tool()
async def late(a: int): ...


@mcp.tool("named", description="Said.")
def other(a: int): ...


def register(server):
    @server.tool(name="inner")
    def hidden(a: int): ...


@mcp.resource("x://y")
def no_tool(): ...
'''


def test_tools_in_every_form_are_found_with_their_server():
    discovered = discover(
        {"mcp/main.py": b"from tools import *", "mcp/tools/a.py": TOOLS, "mcp/test/t.py": b"nonsense("}
    )
    assert found(discovered) == [
        ("tool_server", "mcp.main", 1),
        ("tool", "add", 5),
        ("tool", "late", 10),
        ("tool", "named", 14),
        ("tool", "inner", 19),
    ]
    assert [finding.description for finding in discovered.findings[1:4]] == ["Add.", "", "Said."]
    assert discovered.errors == []


def test_tools_without_an_entry_point_are_reported():
    assert wrong(discover({"mcp/tools/a.py": TOOLS})) == [("mcp/main.py", None)]


def test_a_package_file_that_shadows_mcp_is_reported():
    discovered = discover({"mcp/main.py": b"", "mcp/__init__.py": b""})
    assert wrong(discovered) == [("mcp/__init__.py", 1)]
    assert "hides the installed package" in discovered.errors[0].message


def test_a_tool_with_stars_is_reported_and_one_without_types_warned_of():
    discovered = discover({"mcp/main.py": b"@mcp.tool\ndef f(*a, **k): ...\n@mcp.tool\ndef g(a): ..."})
    assert [(error.line, error.severity) for error in discovered.errors] == [
        (2, "error"),
        (2, "error"),
        (4, "warning"),
    ]


def test_two_tools_with_one_name_are_reported():
    discovered = discover(
        {
            "mcp/main.py": b"",
            "mcp/tools/a.py": b"@m.tool\ndef f(): ...",
            "mcp/tools/b.py": b"@m.tool\ndef f(): ...",
        }
    )
    assert wrong(discovered) == [("mcp/tools/b.py", 2)]


def test_a_repository_with_nothing_of_ours_is_told_what_to_add():
    (error,) = discover({}, {"src", "docs"}).errors
    assert error.file is None
    assert "reward_fn/*.py" in error.message


def test_a_misnamed_folder_is_pointed_out():
    discovered = discover({"mcp/main.py": b""}, {"Reward-Fn", "mcp"})
    assert [(error.file, error.severity) for error in discovered.errors] == [("Reward-Fn", "warning")]


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "@osmosis_reward\n",
                "def f(",
                "solution_str",
                ": str",
                ", ",
                "=1",
                "/",
                "*",
                "): ...\n",
                "x = osmosis_reward\n",
                "\t",
                "if a:\n ",
            ]
        ),
        max_size=15,
    )
)
def test_no_source_makes_discovery_fail(tokens: list[str]):
    discover({"reward_fn/a.py": "".join(tokens).encode(), "mcp/main.py": "".join(tokens).encode()})
