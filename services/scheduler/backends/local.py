"""Attempts as processes of this machine.

Guaranteed: an attempt is a process group of its own, dies with the scheduler that started it, whatever kills that one,
and gets no variable but those named here: no credentials of broker or database, and no key of the deployment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from libs.common.settings import Settings
from libs.common.tokens import derive_token
from services.scheduler.backends import ProcessRef, Start

_ROOT = Path(__file__).resolve().parent.parent.parent.parent
_PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "HF_HUB_OFFLINE",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
)
_PASSED_ON_PREFIXES = ("OMP_", "OPENBLAS_", "MKL_", "CUDA_")
_START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted behind the command's closing bracket."""


class LocalProcesses:
    """Starts `python -m services.trainer.attempt`, or the command that is given."""

    def __init__(self, settings: Settings, command: tuple[str, ...] | None = None) -> None:
        self._settings = settings
        self._command = command or (sys.executable, "-m", "services.trainer.attempt")
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._logs = settings.data_dir.absolute() / "attempts"

    def start(self, start: Start, trainer_url: str) -> ProcessRef:
        """Start an attempt; its output goes to `attempts/<work>-<epoch>.log` below the data folder."""
        self._logs.mkdir(parents=True, exist_ok=True)
        launcher = (sys.executable, "-m", "services.scheduler.backends.launcher", str(os.getpid()))
        with (self._logs / f"{start.work_id}-{start.epoch}.log").open("ab") as log:
            # From the event loop's own thread: the parent-death signal is tied to the thread that forks.
            child = subprocess.Popen(
                (*launcher, *self._command),
                env=self.environment(start, trainer_url),
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return ProcessRef(child.pid, start_time(child.pid) or "")

    def environment(self, start: Start, trainer_url: str) -> dict[str, str]:
        """Every variable of an attempt."""
        settings, secret = self._settings, self._settings.deployment_secret
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        environment |= {
            "PYTHONPATH": str(_ROOT),
            "PYTHONUNBUFFERED": "1",
            "OSMOSIS_ATTEMPT_URL": trainer_url,
            "OSMOSIS_ATTEMPT_WORK_ID": start.work_id,
            "OSMOSIS_ATTEMPT_EPOCH": str(start.epoch),
            "OSMOSIS_ATTEMPT_TOKEN": derive_token(secret, "attempt", start.work_id, start.epoch),
            "OSMOSIS_ENGINE_TOKEN": derive_token(secret, "engine", start.work_id, start.epoch),
            "OSMOSIS_ATTEMPT_DEVICES": ",".join(start.devices),
            "OSMOSIS_BLOB_URL": settings.blobs,
            "OSMOSIS_DATA_DIR": str(settings.data_dir.absolute()),
            "OSMOSIS_INTERNAL_HOST": settings.internal_host,
            "OSMOSIS_ADVERTISED_HOST": settings.advertised_host,
            "OSMOSIS_LOG_LEVEL": settings.log_level,
            "OSMOSIS_LOG_FORMAT": settings.log_format,
        }
        if settings.otlp_endpoint:
            environment["OSMOSIS_OTLP_ENDPOINT"] = settings.otlp_endpoint
        if settings.blobs.startswith("s3:"):
            environment |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
            if settings.s3_endpoint:
                environment["OSMOSIS_S3_ENDPOINT"] = settings.s3_endpoint
        return environment

    def alive(self, process: ProcessRef) -> bool:
        """Whether it runs; a child that has ended is reaped here."""
        child = self._children.get(process.pid)
        if child is not None:
            return child.poll() is None
        return bool(process.started) and start_time(process.pid) == process.started

    def exit_text(self, process: ProcessRef) -> str:
        """How it ended."""
        child = self._children.get(process.pid)
        code = child.poll() if child is not None else None
        if code is None:
            return "its process is gone"
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with status {code}"

    def terminate(self, process: ProcessRef) -> None:
        """SIGTERM to its process group."""
        self._signal(process, signal.SIGTERM)

    def kill(self, process: ProcessRef) -> None:
        """SIGKILL to its process group."""
        self._signal(process, signal.SIGKILL)

    def _signal(self, process: ProcessRef, number: signal.Signals) -> None:
        if self.alive(process):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)


def start_time(pid: int) -> str | None:
    """When a process started, in the kernel's clock ticks; None when there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[_START_TIME_FIELD]
