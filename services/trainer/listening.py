"""Where attempts reach this service: the listener, and the file that tells the scheduler its address.

Guaranteed: the address is written once calls are answered there. With port 0 the port of the last life is taken again
where it is free, so that attempts which outlived a restart find the service where it was.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI

from libs.common.http_server import bind, port_of, serving
from libs.common.settings import Settings

_log = structlog.get_logger(__name__)


def address_file(settings: Settings) -> Path:
    """The file that holds the address."""
    return settings.data_dir.absolute() / "run" / "trainer.url"


async def listen(app: FastAPI, settings: Settings) -> None:
    """Answer attempts until cancelled."""
    listener = _bind(settings)
    async with serving(app, listener):
        address = settings.trainer_url or f"http://{settings.advertised_host}:{port_of(listener)}"
        _announce(address_file(settings), address)
        _log.info("attempts are answered", address=address)
        await asyncio.Event().wait()


def _bind(settings: Settings) -> socket.socket:
    if settings.trainer_port == 0 and (port := _last_port(address_file(settings))) is not None:
        try:
            return bind(settings.internal_host, port)
        except OSError:
            _log.info("the port of the last life is taken", port=port)
    return bind(settings.internal_host, settings.trainer_port)


def _last_port(file: Path) -> int | None:
    try:
        return urlsplit(file.read_text().strip()).port
    except (OSError, ValueError):
        return None


def _announce(file: Path, address: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(address + "\n")
    draft.replace(file)
