"""The gateway as a process of its own: `python -m services.gateway`."""

from __future__ import annotations

import asyncio

from libs.common.running import serve_until_stopped
from services.gateway.service import build

if __name__ == "__main__":
    asyncio.run(serve_until_stopped("gateway", [build]))
