"""Running services as a process: all seven in one, or one by itself. Ends on SIGINT and SIGTERM, cleanly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import structlog
from fastapi import FastAPI, Response

from libs.common.blobs.factory import open_blobs
from libs.common.bus.factory import open_bus
from libs.common.clock import SystemClock
from libs.common.http_server import bind, port_of, serving
from libs.common.platform import Platform
from libs.common.service import Service
from libs.common.settings import Settings
from libs.common.telemetry.logs import configure_logging
from libs.common.telemetry.traces import configure_tracing

Build = Callable[[Platform], Service[Any]]
START_TIMEOUT_S = 120

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def running(platform: Platform, builds: Sequence[Build]) -> AsyncGenerator[list[Service[Any]]]:
    """The services run inside the block, started in full; leaving it stops them.

    Every queue of every service exists before the first of them starts, so no early fact is missed.
    """
    await platform.bus.start()
    services = [build(platform) for build in builds]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(platform.bus.aclose)
        for service in services:
            stack.push_async_callback(service.aclose)
        for service in services:
            await service.prepare()
        group = asyncio.create_task(_run_all(services), name="services")
        stack.push_async_callback(_stop, group, platform)
        await _started(services, group)
        yield services


async def _run_all(services: Sequence[Service[Any]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for service in services:
            tasks.create_task(service.run(), name=service.name)


async def _started(services: Sequence[Service[Any]], group: asyncio.Task[None]) -> None:
    waiting = asyncio.gather(*(service.started.wait() for service in services))
    await asyncio.wait({group, waiting}, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    if group.done():
        waiting.cancel()
        await group
    if not waiting.done():
        waiting.cancel()
        raise TimeoutError(f"services did not start within {START_TIMEOUT_S} s")


async def _stop(group: asyncio.Task[None], platform: Platform) -> None:
    await platform.bus.stop_consuming()
    group.cancel()
    with suppress(asyncio.CancelledError):
        await group


def open_platform(settings: Settings) -> Platform:
    """The platform that the settings describe; the bus is not started yet."""
    clock = SystemClock()
    return Platform(settings, bus=open_bus(settings, clock), blobs=open_blobs(settings), clock=clock)


async def serve_until_stopped(name: str, builds: Sequence[Build]) -> None:
    """Run services as this process, with health and readiness on the probe port, until SIGINT or SIGTERM."""
    settings = Settings()
    configure_logging(name, settings.log_level, settings.log_format)
    configure_tracing(name, settings.otlp_endpoint)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    platform = open_platform(settings)
    async with running(platform, builds) as services:
        listener = bind(settings.internal_host, settings.probe_port)
        async with serving(probe_app(platform, services), listener):
            _log.info("ready", probe_port=port_of(listener), services=[service.name for service in services])
            await stopped.wait()
        _log.info("stopping")


def probe_app(platform: Platform, services: Sequence[Service[Any]]) -> FastAPI:
    """`GET /health`: the process answers. `GET /ready`: bus, database and blob store answer too."""
    app = FastAPI(title="Osmosis probes", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    @app.get("/ready")
    async def ready(response: Response) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        checks = await readiness(platform, services)
        if any(state != "ok" for state in checks.values()):
            response.status_code = 503
        return checks

    return app


async def readiness(platform: Platform, services: Sequence[Service[Any]]) -> dict[str, str]:
    """What each dependency says: `ok`, else what is wrong in a word."""
    checks = {"bus": "ok" if platform.bus.healthy() else "unreachable"}
    checks["blobs"] = await _check(platform.blobs.ping)
    for service in services:
        checks[f"database:{service.name}"] = await _check(service.database.ping)
    return checks


async def _check(ping: Callable[[], Any]) -> str:
    try:
        async with asyncio.timeout(2):
            await ping()
    except Exception as error:  # noqa: BLE001 - a foreign peer is asked; its failure is the answer
        _log.warning("a dependency does not answer", error=repr(error))
        return "unreachable"
    return "ok"
