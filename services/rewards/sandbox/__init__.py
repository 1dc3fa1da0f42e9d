"""The one sandbox of the platform: bubblewrap's walls around a Python process that serves one project."""

from services.rewards.sandbox.launch import Launcher, Sandbox
from services.rewards.sandbox.limits import Limits
from services.rewards.sandbox.project import SandboxProject
from services.rewards.sandbox.selftest import WallReport, report_walls, require_walls

__all__ = ["Launcher", "Limits", "Sandbox", "SandboxProject", "WallReport", "report_walls", "require_walls"]
