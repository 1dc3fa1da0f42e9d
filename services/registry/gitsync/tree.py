"""The files of a commit as git lists them, and whether they may be taken: names, sizes, depth, links.

Pure. A symbolic link is followed the way a file system would, link by link, so that no chain of harmless-looking links
leaves the tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from libs.common.contracts.code import SyncError
from services.registry.gitsync.errors import SyncFailed, fault, warning
from services.registry.gitsync.limits import GitLimits

MAX_HOPS = 40
"""Links that a file system follows before it gives up (Linux: ELOOP after 40)."""

_KINDS: dict[str, Literal["file", "executable", "link", "submodule"]] = {
    "100644": "file",
    "100664": "file",
    "100755": "executable",
    "120000": "link",
    "160000": "submodule",
}
_LFS_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n")
LFS_POINTER_BYTES = 1024


@dataclass(frozen=True)
class Entry:
    """One file. `path` from the root with forward slashes; `size` in bytes."""

    path: str
    kind: Literal["file", "executable", "link", "submodule"]
    object_id: str
    size: int


def parse_entry(record: bytes) -> Entry:
    """An entry of `git ls-tree -r -z -l`: `mode type object size<TAB>path`.

    Raises:
        SyncFailed: a name that is not UTF-8, or a kind of file that does not exist.
    """
    attributes, _, raw_path = record.partition(b"\t")
    mode, _, object_id, size = attributes.decode().split()
    try:
        path = raw_path.decode()
    except UnicodeDecodeError:
        shown = raw_path.decode(errors="backslashreplace")
        raise SyncFailed(fault("a file's name is not UTF-8; rename it", file=shown[:512])) from None
    kind = _KINDS.get(mode)
    if kind is None:
        raise SyncFailed(fault(f"mode {mode} is no kind of file; commit it again", file=path))
    return Entry(path, kind, object_id, 0 if size == "-" else int(size))


def check_entries(entries: Sequence[Entry], limits: GitLimits) -> list[SyncError]:
    """Warnings about entries that are left out.

    Raises:
        SyncFailed: with every entry that cannot be taken, at most 100 of them.
    """
    faults = [found for entry in entries for found in _faults_of(entry, limits)][:100]
    total = sum(entry.size for entry in entries)
    if total > limits.tree_bytes:
        faults.append(
            fault(f"all files together have {total} bytes; at most {limits.tree_bytes} are allowed")
        )
    if faults:
        raise SyncFailed(*faults)
    message = "submodules are not fetched; commit the files themselves"
    return [warning(message, file=entry.path) for entry in entries if entry.kind == "submodule"]


def _faults_of(entry: Entry, limits: GitLimits) -> list[SyncError]:
    parts = entry.path.split("/")
    found: list[SyncError] = []
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or entry.path.startswith("/"):
        found.append(fault("a path with '..', '.git' or an empty part is not allowed", file=entry.path))
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in entry.path):
        found.append(fault("a file's name holds a control character; rename it", file=entry.path))
    if len(parts) > limits.depth:
        found.append(fault(f"{len(parts)} folders deep; at most {limits.depth} are allowed", file=entry.path))
    if len(entry.path.encode()) > limits.path_bytes:
        message = f"a path of over {limits.path_bytes} bytes is not allowed"
        found.append(fault(message, file=entry.path[:200] + "…"))
    if entry.size > limits.file_bytes:
        message = f"{entry.size} bytes; at most {limits.file_bytes} are allowed in one file"
        found.append(fault(message, file=entry.path))
    return found


def check_links(links: Mapping[str, str]) -> list[SyncError]:
    """The links (path to target) that leave the tree, each with where it leads."""
    return [
        fault(f"the symbolic link leads out of the repository (to {target[:200]!r}); remove it", file=path)
        for path, target in links.items()
        if follow(path, links) is None
    ]


def follow(path: str, links: Mapping[str, str]) -> str | None:
    """Where a path leads when every link on the way is followed; None when it leaves the tree or goes in circles."""
    todo = path.split("/")[::-1]
    done: list[str] = []
    hops = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not done:
                return None
            done.pop()
            continue
        target = links.get("/".join([*done, part]))
        if target is None:
            done.append(part)
            continue
        hops += 1
        if hops > MAX_HOPS or target.startswith("/"):
            return None
        todo.extend(target.split("/")[::-1])
    return "/".join(done)


def is_lfs_pointer(content: bytes) -> bool:
    """Whether a file is a stand-in of Git LFS for one that is kept elsewhere."""
    return len(content) <= LFS_POINTER_BYTES and _LFS_POINTER.match(content) is not None
