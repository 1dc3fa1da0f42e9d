"""The tools of projects: one warm, walled template a commit, one fork of it a rollout."""

from services.rewards.tools.host import ToolHost
from services.rewards.tools.session import ToolSession

__all__ = ["ToolHost", "ToolSession"]
