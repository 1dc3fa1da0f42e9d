"""Builds workspace repositories and calls their functions."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import psutil

from services.rewards.domain.inputs import FunctionRef, RewardInput
from services.rewards.domain.verdicts import RewardVerdict
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Limits, SandboxProject

QUICK = Limits(wall_s=20.0, cpu_s=10)
"""Limits of calls that are meant to end well, on a busy machine."""

_HEAD = """
import os
from osmosis_ai import osmosis_reward

@osmosis_reward
def fine(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return 0.5

"""


class Repository:
    """A folder as the registry checked it out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        root.chmod(0o755)

    def write(self, path: str, text: str) -> Repository:
        """A file with that text, without its common indentation."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return self

    def reward(self, body: str) -> Repository:
        """`reward_fn/scores.py` with a good function `fine` and a function `tried` that has this body."""
        inside = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        head = "@osmosis_reward\ndef tried(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:\n"
        return self.write("reward_fn/scores.py", f"{_HEAD}\n{head}{inside}\n")

    def project(self, **fields: Any) -> SandboxProject:
        """As a sandbox sees it."""
        return SandboxProject(self.root, commit="c0ffee", **fields)


def sample(
    answer: str = "42", truth: str | None = "42", sample_id: str = "s1", **metadata: Any
) -> RewardInput:
    """A sample of one question and one answer."""
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    return RewardInput(sample_id, messages, truth, metadata, num_turns=1)


def function(name: str, file: str = "reward_fn/scores.py") -> FunctionRef:
    """A function of a file, named as it is shown."""
    return FunctionRef(f"{Path(file).stem}.{name}", file, name)


async def call(
    pools: SandboxPools, project: SandboxProject, name: str = "tried", limits: Limits = QUICK, **row: Any
) -> RewardVerdict:
    """The verdict of one function of `reward_fn/scores.py` on one sample."""
    [[verdict]] = await pools.call_rewards(project, [function(name)], [sample(**row)], limits)
    return verdict


def living_below() -> set[int]:
    """Processes that this one has started, and theirs."""
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != "zombie"}
