"""Settings of an attempt's process: the platform's, and what the scheduler tells this attempt alone."""

from __future__ import annotations

from pydantic import Field, SecretStr

from libs.common.settings import Settings


class AttemptSettings(Settings):
    """From the environment (`OSMOSIS_ATTEMPT_…`). The tokens open this work and epoch, nothing else."""

    attempt_url: str = Field(description="base address of the trainer service")
    attempt_work_id: str
    attempt_epoch: int
    attempt_token: SecretStr
    engine_token: SecretStr = Field(description="what the broker shows to the policy engine")
    attempt_devices: str = Field(default="", description="cpu:0, or cuda:0,cuda:1; empty: the CPU")

    @property
    def device(self) -> str:
        """The first device of the lease as torch names it: `cpu` or `cuda`, with its number."""
        first = self.attempt_devices.split(",")[0].strip()
        return first if first.startswith("cuda") else "cpu"
