"""The rewards service: groups to score, tools to call, and the sandboxes that both need."""

from __future__ import annotations

from pathlib import Path

from libs.common.contracts.rollouts import CallTool, CloseToolSession, GroupSampled, OpenToolSession
from libs.common.platform import Platform
from libs.common.service import Service
from services.rewards.handlers import Scoring, Tools
from services.rewards.sandboxes import Sandboxes
from services.rewards.settings import SandboxSettings
from services.rewards.store import RewardsStore

NAME = "rewards"
MIGRATIONS = Path(__file__).parent / "migrations"
GROUPS_AT_ONCE = 8


def build(platform: Platform) -> Service[RewardsStore]:
    """The service over a platform. Raises Unavailable when no sandbox can be had and none was not allowed."""
    service = Service(NAME, platform, store=RewardsStore, migrations=MIGRATIONS)
    sandboxes = Sandboxes(platform, SandboxSettings())
    tools = Tools(sandboxes, service.address)
    service.work(GroupSampled, Scoring(platform, sandboxes).score_group, concurrency=GROUPS_AT_ONCE)
    service.answer_outside(OpenToolSession, tools.open)
    service.answer_outside(CallTool, tools.call)
    service.answer_outside(CloseToolSession, tools.close)
    service.background("sandboxes", sandboxes.run)
    return service
