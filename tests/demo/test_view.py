"""What the terminal shows."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from examples.demo.conversations import (
    Conversation,
    in_short,
    one_with_a_tool_call,
    transcript,
    validation_answers,
)
from examples.demo.following import TRAIN_REWARD, VALIDATION_REWARD, Point, Snapshot
from examples.demo.view import View, duration, panel, plain_line, sparkline
from tests.demo.answers import Answers, run_view

START = datetime(2026, 12, 1, 12, tzinfo=UTC)


def rollout(row: int, answer: str, **changes: Any) -> dict[str, Any]:
    return {
        "rollout": {"id": f"ro_{row}", "row_index": row, "reward": 1.0, "tool_calls": 0, **changes},
        "trajectory": {
            "ground_truth": "7",
            "messages": [
                {"role": "user", "content": "What is 5 + 2?"},
                {"role": "assistant", "content": answer},
            ],
        },
    }


def snapshot(**changes: Any) -> Snapshot:
    at = [START + timedelta(seconds=20 * step) for step in range(4)]
    return Snapshot(
        run=run_view(**changes),
        samples_per_step=64,
        running_since=START,
        curves={
            TRAIN_REWARD: [Point(1, 0.25, at[1]), Point(2, 0.5, at[2])],
            VALIDATION_REWARD: [Point(0, 0.125, at[0])],
        },
        newest_rollout=rollout(3, "5 + 2 = 7 [/red] [bold]"),
    )


def shown(what: object) -> str:
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(what)
    return text.getvalue()


def test_the_panel_shows_the_run() -> None:
    text = shown(panel(snapshot()))
    for part in ("running", "2/4", "0.500 now", "step 0: 0.125", "3.20", "0:40", "What is 5 + 2?", "Ctrl-C"):
        assert part in text, part


def test_what_a_model_says_is_never_read_as_markup() -> None:
    assert "[/red] [bold]" in shown(panel(snapshot()))
    assert "[/red]" in in_short(Conversation.of(rollout(3, "[/red]")))


def test_without_a_terminal_each_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(quiet=True)
    with view.watching():
        for _ in range(3):
            view.show(snapshot())
        view.show(snapshot(step=3))
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert plain_line(snapshot()) == "running  step 2/4  reward 0.500  3.20 samples/s"


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0.0, 0.5, 1.0], "▁▅█"), ([-1.0, 2.0], "▁█"), ([1.0] * 60, "█" * 48)]
)
def test_sparkline(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


@pytest.mark.parametrize(("seconds", "text"), [(None, "—"), (0, "0:00"), (65.4, "1:05"), (600, "10:00")])
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_rollout_with_a_tool_reads_turn_by_turn() -> None:
    answers = Answers()
    detail = rollout(0, "7")
    detail["trajectory"]["messages"].insert(
        1,
        {
            "role": "assistant",
            "content": "I will add.",
            "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 5, "b": 2}'}}],
        },
    )
    detail["trajectory"]["messages"].insert(2, {"role": "tool", "content": "7", "tool_call_id": "1"})
    answers["GET /v1/runs/run_1/rollouts"] = {"items": [{"id": "ro_0", "row_index": 0}], "next_cursor": None}
    answers["GET /v1/rollouts/ro_0"] = detail
    conversation = one_with_a_tool_call(answers.rest(), "run_1")
    assert conversation is not None
    assert [message["role"] for message in conversation.prompt] == ["user"]
    assert [role for role, _ in transcript(conversation)] == ["user", "assistant", "tool", "assistant"]
    assert '[calls add with {"a": 5, "b": 2}]' in transcript(conversation)[1][1]
    assert answers.asked[0].url.params["with_tool_calls"] == "true"


def test_validation_answers_are_read_over_all_pages() -> None:
    answers = Answers()
    pages = {
        None: {"items": [{"id": "ro_0", "row_index": 0}], "next_cursor": "more"},
        "more": {"items": [{"id": "ro_1", "row_index": 1}], "next_cursor": None},
    }
    answers["GET /v1/runs/run_1/rollouts"] = lambda request: pages[request.url.params.get("cursor")]
    for row in (0, 1):
        answers[f"GET /v1/rollouts/ro_{row}"] = rollout(row, str(row))
    found = validation_answers(answers.rest(), "run_1", 0)
    assert {row: conversation.answer for row, conversation in found.items()} == {0: "0", 1: "1"}
