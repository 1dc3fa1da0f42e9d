"""Git over HTTPS: a real server, its certificate checked, the pinned address alone, no redirect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.registry.gitsync import Checkout, SyncFailed, Wanted, check_out, parse_remote
from services.registry.gitsync.checkout import fetch_from
from services.registry.gitsync.limits import GitLimits
from services.registry.gitsync.remote import pin_to
from tests.registry.git_repositories import REWARD, Repository
from tests.registry.git_server import GitServer, certificate, serving_git


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "served" / "team" / "code")
    made.commit({"reward_fn/a.py": REWARD})
    return made


@pytest.fixture
def server(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    pem = certificate(tmp_path)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(pem))
    with serving_git(repository.folder.parent.parent, pem) as running:
        yield running


async def sync(url: str, tmp_path: Path, **options: object) -> Checkout:
    folder = tmp_path / "checkout"
    folder.mkdir(exist_ok=True)
    return await check_out(Wanted(parse_remote(url), **options), folder, allow_private=True)


async def test_a_commit_comes_over_https(server: GitServer, repository: Repository, tmp_path: Path):
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"b": "2"})
    done = await sync(server.url("team/code"), tmp_path, commit=first)
    assert done.commit == first
    assert list(done.sources) == ["reward_fn/a.py"]


async def test_a_name_is_reached_at_the_address_that_was_checked(server: GitServer, tmp_path: Path):
    remote = parse_remote(server.url("team/code", host="git.test"))
    pinned = pin_to(remote, ["127.0.0.1"], allow_private=True)
    done = await fetch_from(pinned, Wanted(remote), tmp_path, GitLimits())
    assert list(done.sources) == ["reward_fn/a.py"]


async def test_a_private_address_is_not_even_asked(server: GitServer, tmp_path: Path):
    with pytest.raises(SyncFailed, match="private address"):
        await check_out(Wanted(parse_remote(server.url("team/code"))), tmp_path)
    assert server.asked == []


async def test_a_redirect_is_not_followed(server: GitServer, tmp_path: Path):
    with serving_git(tmp_path / "served", certificate(tmp_path)) as target:
        server.redirect_to = f"https://127.0.0.1:{target.port}"
        with pytest.raises(SyncFailed, match="redirect"):
            await sync(server.url("team/code"), tmp_path)
        assert target.asked == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("GIT_SSL_CAINFO")
    with pytest.raises(SyncFailed, match="certificate"):
        await sync(server.url("team/code"), tmp_path)


async def test_a_repository_that_does_not_exist_is_said_clearly(server: GitServer, tmp_path: Path):
    with pytest.raises(SyncFailed, match="does not exist or is private"):
        await sync(server.url("team/nothing"), tmp_path)
