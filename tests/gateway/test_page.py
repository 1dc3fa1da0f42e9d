"""The web page: one file, its own policy, and the warning about a missing sandbox."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libs.common.running import running
from services.gateway.service import build
from tests.gateway.conftest import address_of
from tests.gateway.worlds import World, platform_of


async def test_the_page_may_run_its_own_script_alone(world: World) -> None:
    async with world.client(None) as client:
        answer = await client.get("/")
    policy = answer.headers["content-security-policy"]
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    assert nonce is not None
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert answer.text.count(f'nonce="{nonce[1]}"') == 2
    assert "__NONCE__" not in answer.text
    assert "localStorage" not in answer.text and "sessionStorage" not in answer.text
    assert "innerHTML" not in answer.text


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
async def test_a_missing_sandbox_is_said_on_the_page(tmp_path: Path, sandbox: str) -> None:
    world = World()
    async with running(platform_of(tmp_path, sandbox=sandbox), [build]):
        world.address = await address_of(tmp_path)
        async with world.client(None) as client:
            page = (await client.get("/")).text
    assert f'<body data-sandbox="{sandbox}">' in page
    assert '[data-sandbox="none"] .warning { display: block; }' in page
