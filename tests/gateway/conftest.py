"""A running gateway for every test that asks for `world`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from libs.common.blobs.folder import FolderBlobs
from libs.common.contracts.requests import ReplyMessage, RequestMessage
from libs.common.running import running
from services.gateway.service import build
from tests.gateway.worlds import OTHER_SERVICES, World, platform_of


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World()
    platform = platform_of(tmp_path)
    world.blobs = cast("FolderBlobs", platform.blobs)

    async def pass_on(message: RequestMessage) -> ReplyMessage:
        return await platform.bus.call("registry", message)

    async with running(platform, [world.build, build]) as services:
        for name in OTHER_SERVICES:
            if name != "registry":
                await platform.bus.serve(name, pass_on)
        world.services["gateway"] = services[-1]
        world.address = await address_of(tmp_path)
        yield world


async def address_of(folder: Path) -> str:
    """Where the gateway listens, once it does."""
    note = folder / "run" / "gateway.url"
    async with asyncio.timeout(10):
        while not note.exists():  # noqa: ASYNC110 - a file cannot be waited for
            await asyncio.sleep(0.01)
    return note.read_text().strip()
