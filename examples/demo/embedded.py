"""The platform as a child process of the demonstration: seven services, embedded, on data of its own.

The child keeps a lock on the folder as long as it lives, so that a second demonstration does not clear the data of a
first one, whatever became of the process that started it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

START_PATIENCE_S = 120.0
STOP_PATIENCE_S = 30.0


class PlatformFailed(Exception):
    """The platform did not start, or ended; the message names its log."""


class EmbeddedPlatform:
    """`python -m services` over `<folder>/platform`; models are kept in `<folder>/models` between runs."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "platform"
        self.models = self.folder / "models"
        self.log = self.folder / "platform.log"
        self._root = root
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        shutil.rmtree(self.data, ignore_errors=True)
        self.models.mkdir(exist_ok=True)
        return self

    def start(self) -> None:
        """Start the services and wait until the gateway is ready.

        Raises:
            PlatformFailed: they ended, or were not ready in time.
        """
        assert self._lock is not None
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "services"),
                cwd=self._root,
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demonstration, which cancels the run before it stops the platform.
                start_new_session=True,
                pass_fds=(self._lock.fileno(),),
            )
        self._wait_until_ready(self._process)

    def environment(self) -> dict[str, str]:
        """The embedded default on this folder; what else the user has set stays (a sandbox that cannot be had)."""
        return {
            **os.environ,
            "OSMOSIS_DATA_DIR": str(self.data),
            "OSMOSIS_BUS_URL": "local://",
            "OSMOSIS_DATABASE_URL": "",
            "OSMOSIS_BLOB_URL": "",
            "OSMOSIS_HOST": "127.0.0.1",
            "OSMOSIS_PORT": "0",
            "OSMOSIS_PROBE_PORT": "0",
            "OSMOSIS_GIT_ALLOW_LOCAL": "1",
            "OSMOSIS_MODEL_ROOTS": f'["{self.models}"]',
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def root_key(self) -> str:
        """The operator's key, which the platform made for itself."""
        given = os.environ.get("OSMOSIS_ROOT_KEY")
        return given or (self.data / "root.key").read_text().strip()

    def check(self) -> None:
        """Raises PlatformFailed when the process has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise PlatformFailed(
                f"the platform ended with code {self._process.returncode}; its log, {self.log}, ends:\n"
                + "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            )

    def wait(self) -> None:
        """Until the platform ends by itself."""
        if self._process is not None:
            self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._lock is not None:
            self._lock.close()

    def _take_lock(self) -> None:
        self._lock = (self.folder / "demo.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise PlatformFailed(
                f"another demonstration, or a platform that it left behind, works in {self.folder};"
                " end it, or use --data-dir with another folder"
            ) from None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        note = self.data / "run" / "gateway.url"
        deadline = time.monotonic() + START_PATIENCE_S
        while time.monotonic() < deadline:
            self.check()
            if note.exists():
                self.address = note.read_text().strip()
                if _ready(self.address):
                    return
            time.sleep(0.1)
        raise PlatformFailed(f"the platform was not ready within {START_PATIENCE_S:.0f} s; see {self.log}")


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
