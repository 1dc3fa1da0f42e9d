"""Tool servers of projects: how they are found, what their tools say, and that a session is a rollout's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libs.common.errors import Invalid
from services.rewards.sandbox import SandboxProject
from services.rewards.tools import ToolHost
from tests.rewards.repositories import Repository, living_below

CALCULATOR = SandboxProject(Path(__file__).parents[2] / "examples" / "calculator-workspace", "c0ffee")

TOOLS = """
import asyncio, os, sys, time
from typing import Annotated, Literal, Optional
from enum import Enum
from fastmcp import FastMCP
from pydantic import BaseModel, Field

app = FastMCP("tests")
SEEN = []

class Colour(str, Enum):
    RED = "red"

class Point(BaseModel):
    x: int

@app.tool
def every(a: int, b: float, c: bool, d: str, e: list[int], f: dict, g: Point, h: Colour,
          i: Annotated[int, Field(description="the ninth")] = 1, j: Optional[str] = None,
          k: Literal[1, 2] = 1) -> str:
    '''Takes every kind.

        Indented.
    '''
    return "taken"

@app.tool
def remember(word: str) -> list[str]:
    SEEN.append(word)
    open(os.environ["TMPDIR"] + "/words", "a").write(word)
    return SEEN

@app.tool
async def later(number: int) -> int:
    await asyncio.sleep(0)
    print("this must not reach the protocol", flush=True)
    os.write(1, b"nor this")
    return number + 1

@app.tool
def nothing() -> None: ...

@app.tool
def thing() -> Point:
    return Point(x=1)

@app.tool
def fails() -> str:
    raise ValueError("no such city")

@app.tool
def dies() -> str:
    os._exit(1)

@app.tool
def hangs() -> str:
    time.sleep(600)

@app.tool
def leaves_a_child() -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.waitpid(pid, 0)
    return 1

@app.tool
def reaches_out() -> str:
    import socket
    socket.create_connection(("127.0.0.1", 5672), timeout=2)
    return "out"

@app.tool
def long() -> str:
    return "x" * 100_000
"""


def tools(repository: Repository) -> SandboxProject:
    return repository.write("mcp/main.py", TOOLS).project()


async def test_the_example_lists_and_answers(host: ToolHost) -> None:
    listed = await host.list_tools(CALCULATOR)
    number = {"type": "number"}
    assert [tool.model_dump() for tool in listed] == [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": {"a": number, "b": number},
                    "required": ["a", "b"],
                },
            },
        }
        for name, description in (("add", "Add two numbers."), ("multiply", "Multiply two numbers."))
    ]
    session = await host.open(CALCULATOR)
    assert (await session.call("add", '{"a": 5, "b": 2}')).text == "7"
    assert (await session.call("multiply", {"a": "3", "b": 4})).text == "12"
    assert await host.warnings(CALCULATOR) == []
    await session.aclose()


async def test_every_kind_of_parameter(host: ToolHost, repository: Repository) -> None:
    [every, *_] = await host.list_tools(tools(repository))
    assert every.function["description"] == "Takes every kind.\n\nIndented."
    properties = every.function["parameters"]["properties"]
    assert {name: shown["type"] for name, shown in properties.items()} == {
        "a": "number",
        "b": "number",
        "c": "boolean",
        "d": "string",
        "e": "array",
        "f": "object",
        "g": "object",
        "h": "string",
        "i": "number",
        "j": "string",
        "k": "number",
    }
    assert properties["h"]["enum"] == ["red"]
    assert properties["i"]["description"] == "the ninth"
    assert every.function["parameters"]["required"] == list("abcdefgh")


async def test_what_calls_say(host: ToolHost, repository: Repository) -> None:
    session = await host.open(tools(repository), timeout_s=20)
    said = {
        ("later", '{"number": 1}'): ("2", False),
        ("nothing", "{}"): ("", False),
        ("thing", "{}"): ('{"x": 1}', False),
        ("nowhere", "{}"): ("Error: Unknown tool: 'nowhere'", True),
        ("later", "[]"): ("Error: the arguments must be a JSON object", True),
    }
    for (name, arguments), (text, failed) in said.items():
        answer = await session.call(name, arguments)
        assert (answer.text, answer.failed) == (text, failed)
    for name, part in (("fails", "no such city"), ("later", "number"), ("reaches_out", "ermission")):
        answer = await session.call(name, "{}")
        assert answer.failed
        assert answer.text.startswith("Error: ")
        assert part in answer.text
    assert "[cut: the result has 100000 characters" in (await session.call("long", {})).text
    await session.aclose()


async def test_state_of_one_session_never_reaches_another(host: ToolHost, repository: Repository) -> None:
    project = tools(repository)
    one, two = await host.open(project), await host.open(project)
    assert (await one.call("remember", {"word": "a"})).text == '["a"]'
    assert (await two.call("remember", {"word": "b"})).text == '["b"]'
    assert (await one.call("remember", {"word": "c"})).text == '["a", "c"]'
    await asyncio.gather(one.aclose(), two.aclose())


async def test_a_crash_costs_that_call_and_the_session_goes_on(
    host: ToolHost, repository: Repository
) -> None:
    session = await host.open(tools(repository), timeout_s=20)
    await session.call("remember", {"word": "a"})
    answer = await session.call("dies", {})
    assert answer.failed
    assert answer.text.startswith("Error: the tool server ended during dies")
    assert (await session.call("remember", {"word": "b"})).text == '["b"]'
    await session.aclose()


async def test_a_tool_that_hangs_is_stopped(host: ToolHost, repository: Repository) -> None:
    session = await host.open(tools(repository))
    await session.call("nothing", {})
    answer = await session.call("hangs", {}, timeout_s=0.3)
    assert answer.text == "Error: hangs took longer than 0.3 seconds and was stopped"
    assert (await session.call("later", {"number": 1})).text == "2"
    await session.aclose()


async def test_what_a_session_started_ends_with_it(host: ToolHost, repository: Repository) -> None:
    project = tools(repository)
    await host.list_tools(project)
    before = living_below()
    session = await host.open(project, timeout_s=20)
    assert (await session.call("leaves_a_child", {})).text == "1"
    await session.aclose()
    async with asyncio.timeout(10):
        while living_below() - before:  # noqa: ASYNC110 - the template ends them
            await asyncio.sleep(0.01)


async def test_a_lost_template_is_started_again(host: ToolHost, repository: Repository) -> None:
    import psutil

    session = await host.open(tools(repository), timeout_s=20)
    await session.call("nothing", {})
    for process in psutil.Process().children():
        process.kill()
    assert (await session.call("later", {"number": 1})).failed in (True, False)
    assert (await session.call("later", {"number": 1})).text == "2"
    await session.aclose()


FAULTY = {
    "no folder": ({"README.md": ""}, "no folder mcp/"),
    "no main": ({"mcp/server.py": ""}, "mcp/main.py is missing"),
    "an import error": ({"mcp/main.py": "import nowhere_at_all"}, "No module named 'nowhere_at_all'"),
    "a syntax error": ({"mcp/main.py": "def f(:\n"}, "SyntaxError"),
    "no object": ({"mcp/main.py": "x = 1"}, "no FastMCP object"),
    "an early end": ({"mcp/main.py": "import os; os._exit(0)"}, "ended the process"),
    "a call of exit": ({"mcp/main.py": "raise SystemExit(2)"}, "SystemExit: 2"),
}


@pytest.mark.parametrize(("files", "says"), FAULTY.values(), ids=FAULTY)
async def test_a_server_that_cannot_be_loaded_is_its_authors_error(
    host: ToolHost, repository: Repository, files: dict[str, str], says: str
) -> None:
    for path, text in files.items():
        repository.write(path, text)
    with pytest.raises(Invalid) as error:
        await host.list_tools(repository.project())
    assert says in error.value.message


async def test_the_first_object_by_name_is_the_server_and_more_than_one_is_a_warning(
    host: ToolHost, repository: Repository
) -> None:
    project = repository.write(
        "mcp/main.py",
        "from fastmcp import FastMCP\nzeta = FastMCP('z')\nalpha = FastMCP('a')\nalias = alpha\n"
        "@zeta.tool\ndef z(): ...\n@alpha.tool\ndef a(): ...\nassert __name__ != '__main__'\n",
    ).project()
    assert [tool.function["name"] for tool in await host.list_tools(project)] == ["a"]
    assert await host.warnings(project) == [
        "mcp/main.py has more than one FastMCP object: alias is used, not zeta"
    ]


async def test_relative_and_absolute_imports_work_and_a_hiding_init_is_a_warning(
    host: ToolHost, repository: Repository
) -> None:
    project = (
        repository.write("mcp/__init__.py", "")
        .write("mcp/server/__init__.py", "from fastmcp import FastMCP\nmcp = FastMCP('s')\n")
        .write("mcp/tools/__init__.py", "from .one import *\n")
        .write("mcp/tools/one.py", "from server import mcp\n@mcp.tool()\ndef one() -> int:\n    import late\n    return late.ONE\n")
        .write("mcp/late.py", "ONE = 1\n")
        .write("mcp/more.py", "TWO = 2\n")
        .write("mcp/main.py", "from server import mcp\nfrom tools import *\nfrom .more import TWO\n")
        .write("mcp/test/__init__.py", "raise RuntimeError('must not be imported')\n")
        .project()
    )  # fmt: skip
    session = await host.open(project)
    assert (await session.call("one", {})).text == "1"
    assert "mcp/__init__.py hides" in (await host.warnings(project))[0]
    await session.aclose()


async def test_nothing_is_left_when_the_host_is_closed(host: ToolHost) -> None:
    session = await host.open(CALCULATOR)
    await session.call("add", {"a": 1, "b": 1})
    await host.aclose()
    await session.aclose()
    assert not living_below()
