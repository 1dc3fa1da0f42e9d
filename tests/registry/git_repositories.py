"""Builders: git repositories in folders, also with trees that no work tree could make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

REWARD = '''from osmosis_ai import osmosis_reward


@osmosis_reward
def exact(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    """1.0 for the exact answer."""
    return float(solution_str == ground_truth)
'''

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": text
        for who in ("AUTHOR", "COMMITTER")
        for what, text in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", "2026-01-01T00:00:00Z"))
    },
}


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=_ENVIRONMENT, input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def commit(
        self,
        files: Mapping[str, str | bytes],
        *,
        links: Mapping[str, str] | None = None,
        message: str = "work",
    ) -> str:
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        for path, place in (links or {}).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(place)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def blob(self, content: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", stdin=content)

    def tree(self, *lines: str) -> str:
        """A tree of `mode type id\\tname` lines."""
        return self.git("mktree", "--missing", stdin="".join(f"{line}\n" for line in lines).encode())

    def commit_tree(self, tree: str) -> str:
        commit = self.git("commit-tree", tree, "-m", "made by hand")
        self.git("update-ref", "refs/heads/main", commit)
        return commit
