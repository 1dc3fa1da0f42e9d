"""What a repository may cost at most."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class GitLimits:
    """Sizes in bytes, times in seconds."""

    fetch_bytes: int = 512 * MIB
    """What git may write while it fetches."""
    memory_bytes: int = 4096 * MIB
    """Address space of a git process, packs that it maps included."""
    tree_bytes: int = 256 * MIB
    """All files of the commit together."""
    file_bytes: int = 64 * MIB
    files: int = 20_000
    depth: int = 32
    path_bytes: int = 512
    source_bytes: int = MIB
    """A Python file that is looked into."""
    seconds: float = 300
    short_commit_history: int = 1000
    """How far back an abbreviated commit is looked for."""
