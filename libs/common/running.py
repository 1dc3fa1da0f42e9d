"""Running services as a process: all seven in one, or one by itself. Ends on SIGINT and SIGTERM, cleanly."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

import structlog
from fastapi import FastAPI, Response
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from libs.common.blobs.factory import open_blobs
from libs.common.bus.factory import open_bus
from libs.common.clock import SystemClock
from libs.common.database import is_transient
from libs.common.file_locks import hold
from libs.common.http_server import bind, port_of, serving
from libs.common.platform import Platform
from libs.common.service import Service
from libs.common.settings import Settings
from libs.common.telemetry.logs import configure_logging
from libs.common.telemetry.traces import configure_tracing

Build = Callable[[Platform], Service[Any]]
START_TIMEOUT_S = 120
PEERS_PATIENCE_S = 60
"""How long a start waits for a database that is not up yet, seconds; the bus waits as long for its broker."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def running(platform: Platform, builds: Sequence[Build]) -> AsyncGenerator[list[Service[Any]]]:
    """The services run inside the block, started in full; leaving it stops them.

    Every queue of every service exists before the first of them starts, so no early fact is missed.
    """
    async with _launched(platform, builds) as (services, _):
        yield services


@asynccontextmanager
async def _launched(
    platform: Platform, builds: Sequence[Build]
) -> AsyncGenerator[tuple[list[Service[Any]], asyncio.Task[None]]]:
    """The running services, and the task that ends, with its error, when one of them does."""
    async with AsyncExitStack() as stack:
        await platform.bus.start()
        stack.push_async_callback(platform.bus.aclose)
        services: list[Service[Any]] = []
        for build in builds:
            services.append(build(platform))
            stack.push_async_callback(services[-1].aclose)
        for service in services:
            await _prepare(service)
        group = asyncio.create_task(_run_all(services), name="services")
        stack.push_async_callback(_stop, group, platform)
        await _started(services, group)
        yield services, group


async def _prepare(service: Service[Any]) -> None:
    """Prepare a service, as soon as its database is there."""
    retrying = AsyncRetrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_delay(PEERS_PATIENCE_S),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        before_sleep=lambda call: _log.warning(
            "a service cannot start yet; trying again",
            service=service.name,
            error=repr(call.outcome.exception() if call.outcome else None),
        ),
        reraise=True,
    )
    await retrying(service.prepare)


async def _run_all(services: Sequence[Service[Any]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for service in services:
            tasks.create_task(service.run(), name=service.name)


async def _started(services: Sequence[Service[Any]], group: asyncio.Task[None]) -> None:
    waiting = asyncio.gather(*(service.started.wait() for service in services))
    try:
        await asyncio.wait({group, waiting}, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if group.done():
            await group
        if not waiting.done():
            late = [service.name for service in services if not service.started.is_set()]
            raise TimeoutError(f"not started within {START_TIMEOUT_S} s: {', '.join(late)}")
    finally:
        waiting.cancel()


async def _stop(group: asyncio.Task[None], platform: Platform) -> None:
    await platform.bus.stop_consuming()
    group.cancel()
    await asyncio.wait({group})
    if not group.cancelled() and (error := group.exception()) is not None:
        raise error


def open_platform(settings: Settings) -> Platform:
    """The platform that the settings describe; the bus is not started yet."""
    clock = SystemClock()
    return Platform(settings, bus=open_bus(settings, clock), blobs=open_blobs(settings), clock=clock)


async def serve_until_stopped(name: str, builds: Sequence[Build]) -> None:
    """Run services as this process until SIGINT or SIGTERM, with health and readiness on the probe port.

    A signal counts from the first moment on, also while a start waits for its peers; a second one ends the process at
    once.

    Raises:
        SystemExit: a service could not start, or ended by itself; the reason is on stderr in one line.
    """
    stopped = _stop_signal()
    serving_task = asyncio.create_task(_serve(name, builds), name="serve")
    waiting = asyncio.create_task(stopped.wait(), name="signals")
    await asyncio.wait({serving_task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    serving_task.cancel()
    await asyncio.wait({serving_task})
    if not serving_task.cancelled() and (error := serving_task.exception()) is not None:
        _log.error("the process ends", error=reason(error), exc_info=error)
        sys.exit(f"osmosis {name}: {reason(error)}")


def _stop_signal() -> asyncio.Event:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal() -> None:
        stopped.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stopped


async def _serve(name: str, builds: Sequence[Build]) -> None:
    settings = Settings()
    configure_logging(name, settings.log_level, settings.log_format)
    configure_tracing(name, settings.otlp_endpoint)
    _ = settings.deployment_secret  # a missing one ends the start, not the first request that needs it
    with _alone(settings):
        platform = open_platform(settings)
        services: list[Service[Any]] = []
        listener = bind(settings.internal_host, settings.probe_port)
        async with serving(probe_app(platform, services), listener):
            async with _launched(platform, builds) as (started, group):
                services.extend(started)
                names = [service.name for service in services]
                _log.info("ready", probe_port=port_of(listener), services=names)
                try:
                    await asyncio.wait({group})
                finally:
                    _log.info("stopping")


@contextmanager
def _alone(settings: Settings) -> Generator[None]:
    """Embedded, one process works on a data folder: its outbox and its leases know no other."""
    if not settings.embedded:
        yield
        return
    with hold(settings.data_dir.absolute() / "run" / "platform.lock") as held:
        if not held:
            raise InUse(
                f"another Osmosis runs on {settings.data_dir.absolute()}; stop it or set another OSMOSIS_DATA_DIR"
            )
        yield


class InUse(Exception):
    """The data folder belongs to another process."""


def reason(error: BaseException) -> str:
    """Why a process ends, in a line: of a group of errors each one's own text, once."""
    return "; ".join(dict.fromkeys(_texts(error)))


def _texts(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for member in group.exceptions:
            yield from _texts(member)
    else:
        yield str(error) or type(error).__name__


def probe_app(platform: Platform, services: Sequence[Service[Any]]) -> FastAPI:
    """`GET /health`: the process answers. `GET /ready`: it has started; bus, database and blob store answer too."""
    app = FastAPI(title="Osmosis probes", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    @app.get("/ready")
    async def ready(response: Response) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        checks = await readiness(platform, services) if services else {"services": "starting"}
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
