"""Settings of the broker alone (`OSMOSIS_ROLLOUT_…`); those of the platform are in libs.common.settings."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class BrokerSettings(BaseSettings):
    """How much one replica does at once."""

    model_config = SettingsConfigDict(env_prefix="OSMOSIS_ROLLOUT_", extra="ignore")

    in_flight: int = Field(default=256, ge=1, description="rollouts that one replica runs at once")
    chat_timeout_s: float = Field(
        default=240,
        gt=0,
        lt=300,
        description="a chat over HTTP is answered or refused within so many seconds",
    )
