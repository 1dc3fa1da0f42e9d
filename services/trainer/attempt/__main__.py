"""`python -m services.trainer.attempt`: one attempt, as the scheduler starts it."""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic import ValidationError

from libs.common.service import field_errors
from libs.common.telemetry.logs import configure_logging
from libs.common.telemetry.traces import configure_tracing, flush_traces
from services.trainer.attempt.running import run_attempt
from services.trainer.attempt.settings import AttemptSettings


async def main() -> None:
    """Run the attempt and leave at once: a computing thread that is still at work must not hold the process."""
    settings = _settings()
    configure_logging("attempt", settings.log_level, settings.log_format)
    configure_tracing("attempt", settings.otlp_endpoint)
    status = await run_attempt(settings)
    flush_traces()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _settings() -> AttemptSettings:
    """From the environment. What is wrong is named without its value, which may be a token."""
    try:
        return AttemptSettings()  # pyright: ignore[reportCallIssue] - the environment fills it
    except ValidationError as error:
        faults = (f"OSMOSIS_{fault.path.upper()}: {fault.message}" for fault in field_errors(error))
        sys.exit(f"an attempt is started by the scheduler, which sets its environment; {'; '.join(faults)}")


if __name__ == "__main__":
    asyncio.run(main())
