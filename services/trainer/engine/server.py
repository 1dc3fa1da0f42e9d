"""The policy engine over HTTP, for the rollout broker: `POST /v1/sample`. No bus and no database on this path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException

from libs.common.http_server import bind, port_of, serving
from libs.common.tokens import bearer, token_matches
from services.trainer.engine.sampling import Overloaded, PolicyEngine, SampleRequest, SampleResult

RETRY_AFTER_S = 1


def engine_app(engine: PolicyEngine, token: str) -> FastAPI:
    """Answers to whoever shows the token of this attempt: another epoch's token opens nothing."""

    def authorised(authorization: Annotated[str | None, Header()] = None) -> None:
        if not token_matches(bearer(authorization), token):
            raise HTTPException(401, "the token does not belong to this attempt of the run")

    app = FastAPI(title="Osmosis policy engine", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    @app.get("/v1/version", dependencies=[Depends(authorised)])
    async def version() -> dict[str, int]:  # pyright: ignore[reportUnusedFunction]
        return {"version": engine.version}

    @app.post("/v1/sample", dependencies=[Depends(authorised)])
    async def sample(request: SampleRequest) -> SampleResult:  # pyright: ignore[reportUnusedFunction]
        try:
            return await engine.sample(request)
        except Overloaded as error:
            raise HTTPException(503, str(error), headers={"Retry-After": str(RETRY_AFTER_S)}) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    return app


@contextmanager
def engine_server(engine: PolicyEngine, token: str, host: str, advertised_host: str) -> Generator[str]:
    """Serve the engine from a thread of its own, on any free port; the block gets its address.

    Raises:
        RuntimeError: the server did not start.
    """
    listener = bind(host, 0)
    loop = asyncio.new_event_loop()
    started: Future[None] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(engine_app(engine, token), listener):
            started.set_result(None)
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="engine-http", daemon=True)
    thread.start()
    try:
        started.result()
        yield f"http://{advertised_host}:{port_of(listener)}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
