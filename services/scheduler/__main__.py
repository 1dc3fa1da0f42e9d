"""The scheduler as a process of its own."""

from __future__ import annotations

import asyncio

from libs.common.running import serve_until_stopped
from services.scheduler.service import build

if __name__ == "__main__":
    asyncio.run(serve_until_stopped("scheduler", [build]))
