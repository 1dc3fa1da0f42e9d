"""The metrics as a process of its own."""

from __future__ import annotations

import asyncio

from libs.common.running import serve_until_stopped
from services.metrics.service import build

if __name__ == "__main__":
    asyncio.run(serve_until_stopped("metrics", [build]))
