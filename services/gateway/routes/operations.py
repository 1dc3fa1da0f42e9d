"""What an operator's tools ask: health, readiness, Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from libs.common.contracts.metrics import GetExposition
from libs.common.running import readiness
from services.gateway.asking import Ask
from services.gateway.state import gateway_of

router = APIRouter(tags=["operations"])


class Health(BaseModel):
    """The process answers."""

    status: str = Field(default="ok", examples=["ok"])


@router.get("/health", summary="Whether the process answers")
async def health() -> Health:
    """Needs no key."""
    return Health()


@router.get(
    "/ready",
    summary="Whether the gateway can serve",
    responses={503: {"description": "Something that it needs does not answer", "model": dict[str, str]}},
)
async def ready(request: Request, response: Response) -> dict[str, str]:
    """Bus, database and blob store, each `ok` or what is wrong; 503 unless all are well. Needs no key."""
    gateway = gateway_of(request)
    checks = await readiness(gateway.platform, [gateway.service])
    if any(state != "ok" for state in checks.values()):
        response.status_code = 503
    return checks


class PrometheusText(PlainTextResponse):
    """Prometheus' text format, version 0.0.4."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics", summary="What Prometheus scrapes", response_class=PrometheusText)
async def get_exposition(ask: Ask) -> PrometheusText:
    """With the operator's key, as a bearer token of the scrape configuration."""
    ask.as_operator()
    return PrometheusText((await ask(GetExposition())).text)
