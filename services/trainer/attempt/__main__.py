"""`python -m services.trainer.attempt`: one attempt, as the scheduler starts it."""

from __future__ import annotations

import asyncio
import os
import sys

from libs.common.telemetry.logs import configure_logging
from libs.common.telemetry.traces import configure_tracing
from services.trainer.attempt.running import run_attempt
from services.trainer.attempt.settings import AttemptSettings


async def main() -> None:
    """Run the attempt and leave at once: a computing thread that is still at work must not hold the process."""
    settings = AttemptSettings()  # pyright: ignore[reportCallIssue] - the environment fills it
    configure_logging("attempt", settings.log_level, settings.log_format)
    configure_tracing("attempt", settings.otlp_endpoint)
    status = await run_attempt(settings)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    asyncio.run(main())
