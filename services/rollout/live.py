"""Rollouts that are being run in this process: what a chat needs at hand, without a database.

Guaranteed here: the limits of the run hold whatever an agent asks for, also over parallel chats; the token of a rollout
is dead once the rollout ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from libs.common.contracts.recipes import SamplingConfig
from libs.common.contracts.rollouts import Phase
from libs.common.errors import NotFound
from libs.common.identifiers import RolloutId, RunId
from services.rollout.conversation import Conversation
from services.rollout.engine import EngineAddress
from services.rollout.messages import Message
from services.rollout.rendering import Renderer
from services.rollout.repeats import Repeats


@dataclass(frozen=True)
class Limits:
    """Of one rollout. Tokens: prompt and answers of all branches together, each counted once."""

    max_turns: int
    max_tokens_total: int
    context_length: int


@dataclass
class Budget:
    """Turns and tokens that a rollout has used, those that chats under way may still use included."""

    limits: Limits
    turns: int = 0
    tokens: int = 0

    def grant(self, *, prompt: int, context: int, wanted: int) -> int:
        """Tokens that an answer may have, 0: none. `prompt` tokens in all, `context` of them new. They are reserved."""
        limits = self.limits
        room = min(wanted, limits.context_length - prompt, limits.max_tokens_total - self.tokens - context)
        if room < 1 or self.turns >= limits.max_turns:
            return 0
        self.turns += 1
        self.tokens += context + room
        return room

    def settle(self, granted: int, used: int) -> None:
        """Give back what an answer did not use."""
        self.tokens -= granted - used

    def undo(self, *, context: int, granted: int) -> None:
        """Give back a turn that came to nothing."""
        self.turns -= 1
        self.tokens -= context + granted


@dataclass
class LiveRollout:
    """One rollout under way. `seed_of_turn`: the seed of an answer by the number of its chat."""

    id: RolloutId
    run_id: RunId
    epoch: int
    phase: Phase
    token: str
    engine: EngineAddress
    renderer: Renderer
    sampling: SamplingConfig
    budget: Budget
    seed_of_turn: Callable[[int], int]
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    messages: list[Message] = field(default_factory=list[Message])
    conversation: Conversation = field(default_factory=Conversation)
    repeats: Repeats = field(default_factory=Repeats)
    chats: int = 0
    tool_calls: int = 0
    policy_s: float = 0.0
    no_room: str | None = None
    ended: bool = False

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the policy sampled."""
        return sum(len(answer.sampled.token_ids) for answer in self.conversation.answers)


class LiveRollouts:
    """The rollouts under way, by id."""

    def __init__(self) -> None:
        self._live: dict[RolloutId, LiveRollout] = {}

    def __len__(self) -> int:
        return len(self._live)

    def begin(self, rollout: LiveRollout) -> None:
        """Chats of this rollout are answered from now on."""
        self._live[rollout.id] = rollout

    async def end(self, rollout: LiveRollout) -> None:
        """No chat is answered any more; those under way are cancelled, and nothing of them is kept."""
        self._live.pop(rollout.id, None)
        rollout.ended = True
        await rollout.repeats.aclose()

    def get(self, rollout_id: RolloutId) -> LiveRollout:
        """The rollout.

        Raises:
            NotFound: it was never begun here, or it has ended.
        """
        found = self._live.get(rollout_id)
        if found is None:
            raise NotFound("no such rollout is under way: it has ended, or its id is wrong")
        return found
