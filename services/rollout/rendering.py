"""Prompts as token ids: a conversation from its beginning, or what follows an answer that was sampled.

Guaranteed here: an answer is never tokenised. What follows it is found by rendering the history with a placeholder in
the answer's place and taking the text behind it, so templates that alter earlier text (strip reasoning, move the list
of tools) cannot touch what was sampled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from libs.common.errors import Invalid
from services.rollout.messages import Habits, Message, content_text, for_template, without_nulls

PLACEHOLDER = "osmosis-answer-stands-here"
_A_CALL = [{"id": "call_1", "type": "function", "function": {"name": "tool", "arguments": "{}"}}]
_CACHED_OPENINGS = 512
"""A group's samples share their opening; a batch has a few hundred groups at most in flight."""


class TemplateFault(Exception):
    """The chat template refused the conversation; the text is the template's own."""


class Tokenizer(Protocol):
    """A model's tokenizer and chat template."""

    @property
    def template(self) -> str:
        """The chat template's source."""
        ...

    def render(self, messages: list[Message], tools: list[Any] | None) -> str:
        """The conversation as text, ending where the assistant speaks.

        Raises:
            TemplateFault: the template cannot render it.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in which special tokens are spelled out; none are added."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        ...

    def spelled(self, token_id: int) -> str:
        """A token as it is spelled in a rendered text, special ones too."""
        ...


class Renderer:
    """Renders the conversations of one model. `context_length` in tokens."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Collection[int], context_length: int) -> None:
        self._tokenizer = tokenizer
        self.stop_ids = frozenset(stop_ids)
        self.context_length = context_length
        self._renders_tools = "tools" in tokenizer.template
        self._habits = Habits(renders_calls="tool_calls" in tokenizer.template)
        self._habits = Habits(self._habits.renders_calls, self._shows_result(calls=_A_CALL))
        self._continues_results = self._shows_result(calls=[])
        self._opening = lru_cache(_CACHED_OPENINGS)(self._render_opening)

    def opening(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[int]:
        """Token ids of a whole conversation, up to where the assistant speaks.

        Raises:
            Invalid: the chat template cannot render it.
        """
        return list(self._opening(json.dumps([list(messages), list(tools)])))

    def _render_opening(self, conversation: str) -> tuple[int, ...]:
        messages, tools = json.loads(conversation)
        try:
            return tuple(self._tokenizer.encode(self._text(messages, tools)))
        except TemplateFault as fault:
            raise Invalid(
                f"the model's chat template cannot render these messages: {fault}; send messages that it knows"
            ) from fault

    def continuation(
        self,
        before: Sequence[Mapping[str, Any]],
        after: Sequence[Mapping[str, Any]],
        tools: Sequence[Any],
        answer_ids: Sequence[int],
    ) -> list[int] | None:
        """Token ids that follow a sampled answer, up to where the assistant speaks again.

        `before`: the messages that the answer answers; `after`: those behind it. They begin with the end of the
        assistant's turn, as far as the answer did not sample it. None: the template does not show what follows
        (it refuses the history, drops or repeats the answer, or drops a tool's result); then the conversation needs
        a new branch.
        """
        if not self._continues_results and any(message.get("role") == "tool" for message in after):
            return None
        answer = {"role": "assistant", "content": PLACEHOLDER}
        try:
            text = self._text([*before, answer, *after], tools)
        except TemplateFault:
            return None
        _, found, rest = text.partition(PLACEHOLDER)
        if not found or PLACEHOLDER in rest:
            return None
        if answer_ids and answer_ids[-1] in self.stop_ids:
            rest = rest.removeprefix(self._tokenizer.spelled(answer_ids[-1]))
        return self._tokenizer.encode(rest)

    def answer_text(self, answer_ids: Sequence[int]) -> str:
        """What an answer says, without the token that ended it."""
        ended = bool(answer_ids) and answer_ids[-1] in self.stop_ids
        return self._tokenizer.decode(answer_ids[:-1] if ended else answer_ids)

    def _text(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> str:
        shown = [without_nulls(tool) for tool in tools]
        if shown and not self._renders_tools:
            messages, shown = _with_tools_in_words(messages, shown), []
        return self._tokenizer.render(for_template(messages, self._habits), shown or None)

    def _shows_result(self, *, calls: list[dict[str, Any]]) -> bool:
        """Whether a tool's result appears in the text, behind an answer with these calls."""
        answer = {"role": "assistant", "content": "answer", "tool_calls": calls}
        result = {"role": "tool", "content": PLACEHOLDER, "tool_call_id": "call_1"}
        try:
            return PLACEHOLDER in self._text([{"role": "user", "content": "question"}, answer, result], [])
        except TemplateFault:
            return False


def _with_tools_in_words(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[object]
) -> list[Mapping[str, Any]]:
    """The messages with the tools described in the system message, for templates that know no tools."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    words = (
        f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
        'Call one with <tool_call>{"name": its name, "arguments": an object}</tool_call>.'
    )
    if messages and messages[0].get("role") == "system":
        system = content_text(messages[0].get("content"))
        return [{"role": "system", "content": f"{system}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]
