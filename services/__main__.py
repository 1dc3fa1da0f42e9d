"""All seven services in one process: the embedded default (`python -m services`, `make up`)."""

from __future__ import annotations

import asyncio
import importlib

from libs.common.running import Build, serve_until_stopped

SERVICES = ("registry", "scheduler", "trainer", "rollout", "rewards", "metrics", "gateway")


def builds() -> list[Build]:
    """The `build` of every service; the gateway comes last, so the public door opens when the rest stands."""
    return [importlib.import_module(f"services.{name}.service").build for name in SERVICES]


if __name__ == "__main__":
    asyncio.run(serve_until_stopped("platform", builds()))
