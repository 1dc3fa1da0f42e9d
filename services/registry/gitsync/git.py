"""Running git with nothing of this machine and nothing of the user: no configuration, hooks, prompts or helpers.

Guaranteed: a git process reaches only the pinned address, writes no file over the limit, and is dead at the deadline
and when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from services.registry.gitsync.errors import SyncFailed, explain, fault
from services.registry.gitsync.limits import GitLimits
from services.registry.gitsync.remote import Pinned

# POSIX sh counts `ulimit -f` in blocks of 512 bytes and `ulimit -v` in KiB.
_LIMITED = 'ulimit -f "$1" && ulimit -v "$2" && shift 2 && exec git "$@"'
_PASSED_ON = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")

_CONFIG = """\
[core]
	hooksPath = /dev/null
	fsmonitor = false
[credential]
	helper =
[safe]
	directory = *
[protocol]
	allow = never
[submodule]
	recurse = false
[gc]
	auto = 0
[pack]
	threads = 1
[transfer]
	fsckObjects = true
	unpackLimit = 1
[uploadpack]
	allowAnySHA1InWant = true
[http]
	followRedirects = false
	lowSpeedLimit = 1000
	lowSpeedTime = 30
"""


class Git:
    """Git commands on one bare repository in `folder`."""

    def __init__(self, folder: Path, pinned: Pinned, limits: GitLimits) -> None:
        self._folder = folder
        self._repository = folder / "objects.git"
        self._limits = limits
        config = _CONFIG
        if pinned.resolve is not None:
            config += f"\tcurloptResolve = {pinned.resolve}\n"
        (folder / "gitconfig").write_text(config)
        protocol = "https" if pinned.remote.kind == "https" else "file"
        self._environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
            "GIT_ALLOW_PROTOCOL": protocol,
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }

    async def create(self) -> None:
        """Make the empty repository, without templates."""
        await self.run("init", "--quiet", "--bare", "--template=", str(self._repository), inside=False)

    async def run(self, *arguments: str, inside: bool = True) -> bytes:
        """Standard output of a command.

        Raises:
            SyncFailed: the command failed; the message says what that means.
        """
        async with self.process(*arguments, inside=inside) as process:
            stdout, stderr = await process.communicate()
        if process.returncode != 0:
            text = stderr.decode(errors="replace")
            if process.returncode in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ):
                text += " file too large"
            raise SyncFailed(fault(explain(text, str(self._folder))))
        return stdout

    @asynccontextmanager
    async def process(
        self, *arguments: str, inside: bool = True
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        """A running command with pipes; it and its children are gone when the block ends."""
        limits = (str(self._limits.fetch_bytes // 512), str(self._limits.memory_bytes // 1024))
        place = ("--git-dir", str(self._repository)) if inside else ()
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _LIMITED,
            "sh",
            *limits,
            *place,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            cwd=self._folder,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # Children outlive a leader that ended; the group is what must be gone.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
