"""Which git addresses users may name, and which machines behind them are reached.

Users name `https://` alone. Folders of this machine (`file://` or an absolute path) and private addresses are for
operators who allow them (`OSMOSIS_GIT_ALLOW_LOCAL`). A name is resolved once, every address it has must be public, and
git connects to that address and follows no redirect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from libs.common.errors import FieldError, Invalid
from services.registry.gitsync.errors import SyncFailed, fault

MAX_URL = 2048
RESOLVE_S = 10
_BRANCH = re.compile(r"^(?!-)(?!.*(\.\.|@\{|//|/\.|\.lock(/|$)))[^\x00-\x20\x7f~^:?*\[\\]{1,200}(?<![/.])$")
_HOST = re.compile(r"^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$|^[0-9a-f:.]+$")


@dataclass(frozen=True)
class Remote:
    """A checked address. `host` and `port` are of https; `url` is what git is given."""

    kind: Literal["https", "local"]
    url: str
    host: str = ""
    port: int = 443


@dataclass(frozen=True)
class Pinned:
    """A remote and the address that git must connect to (`host:port:address`), None for a local folder."""

    remote: Remote
    resolve: str | None


def parse_remote(url: str, *, allow_local: bool = False) -> Remote:
    """The remote that a user named.

    Raises:
        Invalid: any other scheme or form, a user name or password in the address.
    """
    if not url or len(url) > MAX_URL or re.search(r"[\x00-\x20\x7f]", url) or url.startswith("-"):
        raise _refused(
            "a git address is 1 to 2048 characters without spaces, e.g. https://host/team/project.git"
        )
    if "::" in url.partition("/")[0]:
        raise _refused("remote helpers (such as ext::) are not allowed; use https://")
    if url.startswith(("/", "file:")):
        return _local(url, allow_local)
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port or 443
    except ValueError:
        raise _refused("the address is not well formed; use https://host/path") from None
    if parts.scheme != "https":
        raise _refused("only https:// addresses are allowed, e.g. https://host/team/project.git")
    if "@" in parts.netloc:
        raise _refused("a user name, token or password must not stand in the address")
    if not _HOST.match(host) or not parts.path.strip("/") or parts.query or parts.fragment:
        raise _refused(
            "the address needs a host and a path, and nothing after them: https://host/team/project.git"
        )
    netloc = f"[{host}]" if ":" in host else host
    return Remote(
        "https",
        f"https://{netloc}:{port}{parts.path}" if parts.port else f"https://{netloc}{parts.path}",
        host,
        port,
    )


def check_branch(branch: str) -> str:
    """The branch's name.

    Raises:
        Invalid: not a name that git allows.
    """
    if not _BRANCH.match(branch):
        message = f"{branch[:100]!r} is not a branch name that git allows"
        raise Invalid(message, fields=[FieldError("branch", message)])
    return branch


def _local(url: str, allow_local: bool) -> Remote:
    if not allow_local:
        raise _refused(
            "folders of the server are not allowed here; use https:// (operators: OSMOSIS_GIT_ALLOW_LOCAL)"
        )
    path = unquote(url.removeprefix("file://")) if url.startswith("file://") else url
    if not path.startswith("/") or ".." in Path(path).parts:
        raise _refused("a local repository is an absolute path, or file:// and an absolute path")
    return Remote("local", f"file://{path}")


def _refused(message: str) -> Invalid:
    return Invalid(message, fields=[FieldError("url", message)])


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet, also when it is wrapped in an IPv6 form."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or _nat64(ip)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside 64:ff9b::/96 (RFC 6052)."""
    if ip in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


async def pin(remote: Remote, *, allow_private: bool) -> Pinned:
    """Resolve a remote's host once.

    Raises:
        SyncFailed: the name is unknown, or leads to an address that is not public.
    """
    if remote.kind == "local":
        return Pinned(remote, None)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await loop.getaddrinfo(remote.host, remote.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        raise SyncFailed(fault(f"the host {remote.host} is unknown; check its spelling")) from None
    return pin_to(remote, [str(entry[4][0]) for entry in found], allow_private=allow_private)


def pin_to(remote: Remote, addresses: list[str], *, allow_private: bool) -> Pinned:
    """The remote, pinned to the first of its addresses.

    Raises:
        SyncFailed: one of the addresses is not public.
    """
    if not allow_private and not all(is_public(address) for address in addresses):
        raise SyncFailed(fault(f"{remote.host} leads to a private address, which is not allowed"))
    address = addresses[0]
    shown = f"[{address}]" if ":" in address else address
    return Pinned(remote, f"{remote.host}:{remote.port}:{shown}")
