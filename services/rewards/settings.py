"""Settings of the rewards service alone (`OSMOSIS_SANDBOX_…`); those of the platform are in libs.common.settings."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SandboxSettings(BaseSettings):
    """How sandboxes are made."""

    model_config = SettingsConfigDict(env_prefix="OSMOSIS_SANDBOX_", extra="ignore")

    allow_missing: list[str] = Field(
        default_factory=list[str],
        description="names of walls that may be missing; the self-test names those that are",
    )
    packages: list[str] = Field(
        default=["fastmcp", "mcp"],
        description="distributions that user code may import beside the standard library, with all they require",
    )
    workers: int | None = Field(
        default=None, ge=1, description="sandboxes of one project at a time; default: one a processor"
    )
    warm_projects: int = Field(default=8, ge=1, description="projects whose sandboxes are kept warm")
