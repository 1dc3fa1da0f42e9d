"""Rollouts as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.demo.rest import Json, Rest

_SHORT = 60
PAGE = 200


@dataclass(frozen=True)
class Conversation:
    """What was said in a rollout, and what it was worth."""

    row: int
    messages: list[Json]
    reward: float | None
    ground_truth: str | None
    tool_calls: int

    @classmethod
    def of(cls, detail: Json) -> Conversation:
        """From `GET /v1/rollouts/{id}`."""
        rollout, trajectory = detail["rollout"], detail["trajectory"] or {}
        return cls(
            row=rollout["row_index"],
            messages=trajectory.get("messages", []),
            reward=rollout["reward"],
            ground_truth=trajectory.get("ground_truth"),
            tool_calls=rollout["tool_calls"],
        )

    @property
    def question(self) -> str:
        """The first thing that the user said."""
        return next((text_of(m) for m in self.messages if m["role"] == "user"), "")

    @property
    def prompt(self) -> list[Json]:
        """What stood before the policy's first words."""
        roles = [message["role"] for message in self.messages]
        return self.messages[: roles.index("assistant")] if "assistant" in roles else self.messages

    @property
    def answer(self) -> str:
        """The last thing that the policy said."""
        return next((text_of(m) for m in reversed(self.messages) if m["role"] == "assistant"), "")


def text_of(message: Json) -> str:
    """A message's content as text."""
    content: Any = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def in_short(conversation: Conversation) -> str:
    """One line: question, answer, reward."""
    answer = " ".join(conversation.answer.split())
    if len(answer) > _SHORT:
        answer = f"{answer[:_SHORT]}…"
    reward = "no reward" if conversation.reward is None else f"reward {conversation.reward:.1f}"
    return f"{conversation.question} → {answer}   ({reward})"


def validation_answers(rest: Rest, run: str, step: int) -> dict[int, Conversation]:
    """The held-out conversations of one validation, by row."""
    found: dict[int, Conversation] = {}
    cursor = None
    while True:
        page = rest.get(
            f"/v1/runs/{run}/rollouts",
            phase="validation",
            step=step,
            limit=PAGE,
            **({"cursor": cursor} if cursor else {}),
        )
        for item in page["items"]:
            if item["row_index"] not in found:
                found[item["row_index"]] = Conversation.of(rest.get(f"/v1/rollouts/{item['id']}"))
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def one_with_a_tool_call(rest: Rest, run: str) -> Conversation | None:
    """A rollout of the run in which a tool was called."""
    page = rest.get(f"/v1/runs/{run}/rollouts", with_tool_calls=True, status="completed", limit=1)
    if not page["items"]:
        return None
    return Conversation.of(rest.get(f"/v1/rollouts/{page['items'][0]['id']}"))


def transcript(conversation: Conversation) -> list[tuple[str, str]]:
    """Who said what, in order; calls of tools are shown as the model made them."""
    lines: list[tuple[str, str]] = []
    for message in conversation.messages:
        said = text_of(message)
        for call in message.get("tool_calls") or []:
            function = call["function"]
            said += f"\n[calls {function['name']} with {function['arguments']}]"
        lines.append((str(message["role"]), said.strip()))
    return lines
