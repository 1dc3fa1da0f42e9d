"""Where agents reach this replica: the listener, and the file that tells its address on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog
from fastapi import FastAPI

from libs.common.http_server import bind, port_of, serving
from libs.common.settings import Settings

_log = structlog.get_logger(__name__)


def address_file(settings: Settings) -> Path:
    """The file that holds the address."""
    return settings.data_dir.absolute() / "run" / "rollout.url"


async def listen(app: FastAPI, settings: Settings) -> None:
    """Answer agents until cancelled."""
    listener = bind(settings.internal_host, settings.rollout_port)
    async with serving(app, listener):
        address = f"http://{settings.advertised_host}:{port_of(listener)}"
        file = address_file(settings)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".tmp")
        draft.write_text(address + "\n")
        draft.replace(file)
        _log.info("chats are answered", address=address)
        await asyncio.Event().wait()
