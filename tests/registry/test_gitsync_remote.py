"""Which git addresses are taken, and where links and addresses lead."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.errors import Invalid
from services.registry.gitsync import Remote, SyncFailed, check_branch, parse_remote
from services.registry.gitsync.remote import is_public, pin, pin_to
from services.registry.gitsync.tree import follow


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://github.com/team/project.git", "github.com", 443),
        ("https://Git.Example.org:8443/a/b", "git.example.org", 8443),
        ("https://[2001:db8::1]/a", "2001:db8::1", 443),
    ],
)
def test_https_addresses_are_taken(url: str, host: str, port: int):
    remote = parse_remote(url)
    assert (remote.kind, remote.host, remote.port) == ("https", host, port)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ext::sh -c touch% /tmp/x",
        "ext::https://a/b",
        "fd::17/x",
        "-u./evil",
        "--upload-pack=touch x",
        "http://github.com/a/b",
        "git://github.com/a/b",
        "ssh://git@github.com/a/b",
        "git@github.com:a/b.git",
        "file:///etc",
        "/etc",
        "../up",
        "https://user:secret@github.com/a/b",
        "https://token@github.com/a/b",
        "https://github.com",
        "https://github.com/",
        "https:///a/b",
        "https://github.com/a?x=1",
        "https://github.com/a#x",
        "https://github.com:99999/a",
        "https://-evil/a",
        "https://git hub.com/a",
        "https://github.com/a\nb",
        "https://github.com/\0",
        "https://" + "a" * 3000,
        "javascript:alert(1)",
    ],
)
def test_other_addresses_are_refused_without_repeating_secrets(url: str):
    with pytest.raises(Invalid) as caught:
        parse_remote(url)
    assert "secret" not in caught.value.message
    assert caught.value.fields[0].path == "url"


def test_folders_are_for_operators_who_allow_them():
    assert parse_remote("/srv/a.git", allow_local=True) == Remote("local", "file:///srv/a.git")
    assert parse_remote("file:///srv/a%20b", allow_local=True).url == "file:///srv/a b"
    for url in ("file://host/share", "/srv/../etc", "file://../x"):
        with pytest.raises(Invalid):
            parse_remote(url, allow_local=True)


@pytest.mark.parametrize("branch", ["main", "feature/a-b", "v1.0", "é"])
def test_branch_names_of_git_are_taken(branch: str):
    assert check_branch(branch) == branch


@pytest.mark.parametrize(
    "branch",
    [
        "",
        "-x",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "a.",
        "a/",
        "a.lock",
        "a@{1}",
        "a//b",
        "\n",
    ],
)
def test_other_branch_names_are_refused(branch: str):
    with pytest.raises(Invalid):
        check_branch(branch)


@pytest.mark.parametrize("address", ["8.8.8.8", "140.82.112.3", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses(address: str):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "2002:7f00:1::", "64:ff9b::7f00:1", "2001:0:0:0:0:0:80ff:fffe",
    ],
)  # fmt: skip
def test_private_addresses_in_every_form(address: str):
    assert not is_public(address)


def test_one_private_address_among_public_ones_is_refused():
    remote = parse_remote("https://example.org/a")
    assert pin_to(remote, ["8.8.8.8"], allow_private=False).resolve == "example.org:443:8.8.8.8"
    with pytest.raises(SyncFailed, match="private address"):
        pin_to(remote, ["8.8.8.8", "10.0.0.1"], allow_private=False)
    assert pin_to(remote, ["::1"], allow_private=True).resolve == "example.org:443:[::1]"


async def test_a_name_that_leads_to_this_machine_is_refused():
    with pytest.raises(SyncFailed, match="private address"):
        await pin(parse_remote("https://localhost/a"), allow_private=False)


part = st.sampled_from(["a", "b", "c", ".", ".."])
paths = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
targets = st.builds(
    lambda up, parts: up + "/".join(parts),
    st.sampled_from(["", "", "/"]),
    st.lists(part, min_size=1, max_size=4),
)


@settings(max_examples=150)
@given(links=st.dictionaries(paths, targets, max_size=4), path=paths)
def test_links_lead_where_the_file_system_says(
    links: dict[str, str], path: str, tmp_path_factory: pytest.TempPathFactory
):
    links = {
        link: target
        for link, target in links.items()
        if not any(o != link and link.startswith(o + "/") for o in links)
    }
    root = tmp_path_factory.mktemp("tree", numbered=True)
    for folder in ("a/a/a", "a/b", "b/a", "c/c"):
        if not any(folder == link or folder.startswith(link + "/") for link in links):
            (root / folder).mkdir(parents=True, exist_ok=True)
    for link, target in links.items():
        place = root / link
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() and not place.is_symlink():
            place.symlink_to(target)
    real_links = {link: target for link, target in links.items() if (root / link).is_symlink()}
    led = follow(path, real_links)
    try:
        real = (root / path).resolve(strict=True)
    except (OSError, RuntimeError):
        return
    inside = real == root or root in real.parents
    if led is not None:
        assert inside
        assert Path(posixpath.normpath(root / led)) == real
    else:
        assert not inside or _passes_outside(root, path, real_links)


def _passes_outside(root: Path, path: str, links: dict[str, str]) -> bool:
    """A path may leave the tree and come back by the root's own name: still refused."""
    return any(target.startswith("/") or ".." in target for target in links.values())
