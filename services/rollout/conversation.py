"""What was sampled in one rollout: answers in a tree, and the branches that are trained on.

Guaranteed here: a branch holds exactly the token ids that the policy saw and sampled; an answer that several branches
share is trainable in the first of them alone; an answer that nobody received is in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from libs.common.contracts.trajectories import Branch, SampledSpan
from services.rollout.messages import ANSWER_MARK, Message, prefix_digests

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Sampled:
    """One answer of the engine. `logprobs`: one a token, nats."""

    token_ids: list[int]
    logprobs: list[float]
    version: int
    temperature: float
    finish_reason: FinishReason


@dataclass(eq=False)
class Answer:
    """An answer in the tree. `context_ids`: tokens between the parent's answer (or the beginning) and this one."""

    mark: str
    parent: Answer | None
    context_ids: list[int]
    sampled: Sampled
    received: bool = True
    children: int = 0

    def ids(self) -> list[int]:
        """Every token from the beginning through this answer."""
        return [token for one in self.path() for token in (*one.context_ids, *one.sampled.token_ids)]

    def path(self) -> list[Answer]:
        """The answers from the first of the branch through this one."""
        path: list[Answer] = []
        one: Answer | None = self
        while one is not None:
            path.append(one)
            one = one.parent
        return path[::-1]


@dataclass(frozen=True)
class Known:
    """The longest part of a history that ends in an answer of ours: `answer` is its message number `length`."""

    answer: Answer
    length: int


@dataclass
class Conversation:
    """The answers of one rollout, in the order in which they were sampled."""

    answers: list[Answer] = field(default_factory=list[Answer])
    _by_history: dict[bytes, list[Answer]] = field(default_factory=dict[bytes, list[Answer]])

    def match(self, messages: Sequence[Mapping[str, Any]]) -> Known | None:
        """The longest known prefix of messages that ends in an answer; None: a history that starts afresh."""
        digests = prefix_digests(messages)
        for length in range(len(messages), 0, -1):
            candidates = self._by_history.get(digests[length - 1], [])
            if candidates:
                mark = messages[length - 1].get(ANSWER_MARK)
                named = [answer for answer in candidates if answer.mark == mark]
                return Known((named or candidates)[-1], length)
        return None

    def record(
        self,
        messages: Sequence[Mapping[str, Any]],
        said: Message,
        parent: Answer | None,
        context_ids: list[int],
        sampled: Sampled,
    ) -> Answer:
        """Keep an answer to `messages`; `said` is the message that the agent gets of it, with its mark."""
        if len(sampled.logprobs) != len(sampled.token_ids):
            raise ValueError(
                f"{len(sampled.token_ids)} tokens were sampled with {len(sampled.logprobs)} log-probabilities"
            )
        answer = Answer(str(said[ANSWER_MARK]), parent, context_ids, sampled)
        if parent is not None:
            parent.children += 1
        self.answers.append(answer)
        history = prefix_digests([*messages, said])[-1]
        self._by_history.setdefault(history, []).append(answer)
        return answer

    def branches(self) -> list[Branch]:
        """One branch a leaf, in the order in which the leaves were sampled."""
        trained: set[int] = set()
        leaves = [answer for answer in self.answers if not answer.children and answer.received]
        return [_branch(leaf, trained) for leaf in leaves]


def _branch(leaf: Answer, trained: set[int]) -> Branch:
    token_ids: list[int] = []
    spans: list[SampledSpan] = []
    for answer in leaf.path():
        token_ids.extend(answer.context_ids)
        if id(answer) not in trained:
            trained.add(id(answer))
            spans.append(_span(answer.sampled, len(token_ids)))
        token_ids.extend(answer.sampled.token_ids)
    return Branch(token_ids=token_ids, sampled=spans)


def _span(sampled: Sampled, start: int) -> SampledSpan:
    return SampledSpan(
        start=start,
        logprobs=sampled.logprobs,
        version=sampled.version,
        temperature=sampled.temperature,
        finish_reason=sampled.finish_reason,
    )
