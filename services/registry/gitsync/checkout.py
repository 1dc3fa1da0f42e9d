"""Fetching a commit and packing its tree."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libs.common.contracts.code import SyncError
from services.registry.gitsync.archive import Archive
from services.registry.gitsync.errors import SyncFailed, fault, warning
from services.registry.gitsync.git import Git
from services.registry.gitsync.limits import GitLimits
from services.registry.gitsync.remote import Pinned, Remote, pin
from services.registry.gitsync.tree import (
    Entry,
    check_entries,
    check_links,
    follow,
    is_lfs_pointer,
    parse_entry,
)

SOURCE_FOLDERS = ("reward_fn", "reward_rubric", "mcp")
_REF = "refs/osmosis/head"
_FULL_COMMIT = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True)
class Wanted:
    """What to fetch: `commit` (7 to 40 hex digits) wins; `branch` None is the remote's default branch."""

    remote: Remote
    branch: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class Checkout:
    """A packed commit. `sources`: the Python files that discovery looks into, by path; `folders`: at the root.

    `errors` are faults of single files and warnings; what makes the whole tree useless is raised instead.
    """

    commit: str
    author: str
    message: str
    archive: Path
    sha256: str
    size: int
    sources: Mapping[str, bytes]
    folders: frozenset[str]
    errors: list[SyncError]


async def check_out(
    wanted: Wanted, folder: Path, *, allow_private: bool = False, limits: GitLimits | None = None
) -> Checkout:
    """Fetch into the empty `folder` and pack the tree there; cancelling ends git.

    Raises:
        SyncFailed: the address, branch or commit does not exist, the tree breaks a limit or a link leaves it.
    """
    limits = limits or GitLimits()
    try:
        async with asyncio.timeout(limits.seconds):
            pinned = await pin(wanted.remote, allow_private=allow_private)
            return await fetch_from(pinned, wanted, folder, limits)
    except TimeoutError:
        raise SyncFailed(fault(f"the sync took more than {limits.seconds:g} s")) from None


async def fetch_from(pinned: Pinned, wanted: Wanted, folder: Path, limits: GitLimits) -> Checkout:
    """Fetch and pack from an address that was checked; see `check_out`."""
    git = Git(folder, pinned, limits)
    await git.create()
    commit = await _fetch(git, wanted, pinned, limits)
    return await _pack(git, commit, folder / "tree.tar", limits)


async def _fetch(git: Git, wanted: Wanted, pinned: Pinned, limits: GitLimits) -> str:
    branch = f"refs/heads/{wanted.branch}" if wanted.branch else "HEAD"
    exact = wanted.commit is not None and _FULL_COMMIT.match(wanted.commit)
    what = str(wanted.commit) if exact else branch
    depth = 1 if exact or not wanted.commit else limits.short_commit_history
    refspec = f"+{what}:{_REF}"
    options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", f"--depth={depth}")
    await git.run("fetch", *options, "--", pinned.remote.url, refspec)
    if wanted.commit and not exact:
        return await _resolve_short(git, wanted.commit)
    return (await git.run("rev-parse", "--verify", f"{_REF}^{{commit}}")).decode().strip()


async def _resolve_short(git: Git, commit: str) -> str:
    try:
        return (await git.run("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")).decode().strip()
    except SyncFailed:
        message = f"no single commit starts with {commit} in the branch's recent history; give all 40 digits"
        raise SyncFailed(fault(message)) from None


async def _pack(git: Git, commit: str, target: Path, limits: GitLimits) -> Checkout:
    # `log`, not `show`: the latter compares whole trees even when it prints no difference.
    described = await git.run("log", "-1", "--no-show-signature", "--format=%an%x00%s", commit)
    author, _, message = described.decode(errors="replace").rstrip("\n").partition("\0")
    entries = await _entries(git, commit, limits)
    warnings = check_entries(entries, limits)
    links = await _read_links(git, entries)
    if leaving := check_links(links):
        raise SyncFailed(*leaving[:100])
    archive = Archive(target)
    try:
        places = {entry.path: follow(entry.path, links) for entry in entries}
        wanted = {place for path, place in places.items() if place is not None and _is_source(path)}
        contents, found = await _write(git, entries, archive, wanted, limits)
    finally:
        archive.close()
    sources = {
        path: contents[place] for path, place in places.items() if place in contents and _is_source(path)
    }
    return Checkout(
        commit,
        author[:256],
        message[:1024],
        target,
        archive.sha256,
        archive.size,
        sources,
        frozenset(entry.path.split("/")[0] for entry in entries if "/" in entry.path),
        [*warnings, *found],
    )


async def _entries(git: Git, commit: str, limits: GitLimits) -> list[Entry]:
    """All entries, sorted by path. The list is read as it comes: a small pack can hold an endless tree."""
    found: list[Entry] = []
    async with git.process("ls-tree", "-r", "-z", "-l", "--full-tree", commit) as process:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(64 * 1024):
            *records, rest = (rest + chunk).split(b"\0")
            found.extend(parse_entry(record) for record in records)
            if len(found) > limits.files or len(rest) > 64 * 1024:
                raise SyncFailed(fault(f"more than {limits.files} files; at most so many are allowed"))
        if await process.wait() != 0:
            raise SyncFailed(fault("the commit's tree cannot be read; is the repository damaged?"))
    return sorted(found, key=lambda entry: entry.path)


async def _read_links(git: Git, entries: list[Entry]) -> dict[str, str]:
    links = [entry for entry in entries if entry.kind == "link"]
    found: dict[str, str] = {}
    async with _Objects(git) as objects:
        for entry in links:
            if entry.size > 4096:
                raise SyncFailed(fault("a symbolic link of over 4096 bytes is not allowed", file=entry.path))
            try:
                found[entry.path] = (await objects.read(entry)).decode()
            except UnicodeDecodeError:
                raise SyncFailed(
                    fault("the link's target is not UTF-8; remove it", file=entry.path)
                ) from None
    return found


async def _write(
    git: Git, entries: list[Entry], archive: Archive, wanted: set[str], limits: GitLimits
) -> tuple[dict[str, bytes], list[SyncError]]:
    """Write every entry; the contents of the wanted ones, and what was noticed on the way."""
    sources: dict[str, bytes] = {}
    found: list[SyncError] = []
    async with _Objects(git) as objects:
        for entry in entries:
            if entry.kind == "submodule":
                continue
            content = await objects.read(entry)
            archive.add(entry, content)
            if is_lfs_pointer(content):
                found.append(
                    warning("kept in Git LFS, which is not fetched; commit the file itself", file=entry.path)
                )
            if entry.path in wanted and len(content) <= limits.source_bytes:
                sources[entry.path] = content
            elif entry.path in wanted:
                message = f"{len(content)} bytes of Python; at most {limits.source_bytes} are looked into"
                found.append(fault(message, file=entry.path))
    return sources, found


def _is_source(path: str) -> bool:
    return path.endswith(".py") and path.split("/")[0] in SOURCE_FOLDERS


class _Objects:
    """Contents of objects, one after the other, from one `git cat-file --batch`."""

    def __init__(self, git: Git) -> None:
        self._running = git.process("cat-file", "--batch")

    async def __aenter__(self) -> _Objects:
        self._process = await self._running.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._running.__aexit__(None, None, None)

    async def read(self, entry: Entry) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(entry.object_id.encode() + b"\n")
            await self._process.stdin.drain()
            header = await self._process.stdout.readline()
            if not header.endswith(b" blob %d\n" % entry.size):
                raise SyncFailed(fault("the file's content is missing or damaged", file=entry.path))
            content = await self._process.stdout.readexactly(entry.size + 1)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise SyncFailed(fault("the file's content cannot be read", file=entry.path)) from None
        return content[:-1]
