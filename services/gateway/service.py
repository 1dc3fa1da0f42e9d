"""Wires the gateway: it hears public facts, keeps their log, and serves HTTP as work of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import structlog

from libs.common.http_server import bind, port_of, serving
from libs.common.platform import Platform
from libs.common.service import Service
from services.gateway.api import create_app
from services.gateway.authentication import Authenticator
from services.gateway.event_tail import EventTail
from services.gateway.handlers import logging_events
from services.gateway.public_events import PUBLIC
from services.gateway.state import Gateway
from services.gateway.store import GatewayStore

_MIGRATIONS = Path(__file__).parent / "migrations"

_log = structlog.get_logger(__name__)


def build(platform: Platform) -> Service[GatewayStore]:
    """The gateway of one process."""
    return build_gateway(platform).service


def build_gateway(platform: Platform) -> Gateway:
    """The gateway with what its routes work with."""
    service = Service("gateway", platform, store=GatewayStore, migrations=_MIGRATIONS)
    authenticator = Authenticator(platform)
    tail = EventTail(service.units, platform.clock, revoked=authenticator.forget)
    gateway = Gateway(platform, service, authenticator, tail)
    log = logging_events(tail.wake)
    for fact in PUBLIC:
        service.on(fact, log)
    service.background("event tail", tail.run)
    service.background("event retention", tail.clean)
    service.background("http", lambda: _serve(gateway))
    return gateway


async def _serve(gateway: Gateway) -> None:
    settings = gateway.platform.settings
    listener = bind(settings.host, settings.port)
    address = f"http://{_host(settings.host)}:{port_of(listener)}"
    note = settings.data_dir.absolute() / "run" / "gateway.url"
    async with serving(create_app(gateway), listener):
        _write(note, address)
        _log.info("gateway listens", address=address)
        if settings.sandbox == "none":
            _log.warning("OSMOSIS_SANDBOX=none: code of synced repositories runs without a sandbox")
        try:
            await asyncio.Event().wait()
        finally:
            note.unlink(missing_ok=True)
            await gateway.tail.close()


def _host(host: str) -> str:
    """The host as a client on this machine writes it."""
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return local.get(host, f"[{host}]" if ":" in host else host)


def _write(note: Path, address: str) -> None:
    """Whole or not at all: whoever waits for the file reads a full address."""
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_suffix(f".{os.getpid()}")
    draft.write_text(address + "\n")
    draft.replace(note)
