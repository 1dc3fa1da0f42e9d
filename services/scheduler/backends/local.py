"""Attempts as processes of this machine.

Guaranteed: an attempt is a session of its own and dies with the scheduler that started it, whatever kills that one;
what it started dies with it, unless that made a session of its own; it gets no variable but those named here: no
credentials of broker or database, and no key of the deployment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from libs.common.settings import Settings
from libs.common.tokens import derive_token
from services.scheduler.backends import Exit, ProcessRef, Start

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
_SESSION_FIELD, _START_TIME_FIELD = 3, 19
"""Of /proc/PID/stat (proc(5)), counted behind the command's closing bracket."""


class LocalProcesses:
    """Starts `python -m services.trainer.attempt`, or the command that is given."""

    def __init__(self, settings: Settings, command: tuple[str, ...] | None = None) -> None:
        self._settings = settings
        self._command = command or (sys.executable, "-m", "services.trainer.attempt")
        self._children: dict[ProcessRef, subprocess.Popen[bytes]] = {}
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
        # Not reaped yet, it is there even if it has ended.
        seen = look_at(child.pid)
        process = ProcessRef(child.pid, seen.started if seen is not None else "")
        self._children[process] = child
        return process

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
        """Whether it, or a process of its session, runs. Once it has ended, what it left behind is killed here."""
        if self._runs(process):
            return True
        left = members(process)
        for pid in left:
            _signal(pid, signal.SIGKILL)
        return bool(left)

    def ended(self, process: ProcessRef) -> Exit | None:
        """How it ended; of a process that an earlier life of the scheduler started nobody knows."""
        if self._runs(process):
            return None
        child = self._children.get(process)
        code = child.returncode if child is not None else None
        if code is None:
            return Exit(said=False, text="its process is gone")
        if code < 0:
            return Exit(said=False, text=f"its process was ended by {signal.Signals(-code).name}")
        return Exit(said=code == 0, text=f"its process ended with status {code}")

    def terminate(self, process: ProcessRef) -> None:
        """SIGTERM to all of its session."""
        for pid in members(process):
            _signal(pid, signal.SIGTERM)

    def kill(self, process: ProcessRef) -> None:
        """SIGKILL to all of its session."""
        for pid in members(process):
            _signal(pid, signal.SIGKILL)

    def _runs(self, process: ProcessRef) -> bool:
        child = self._children.get(process)
        if child is not None:
            return child.poll() is None
        seen = look_at(process.pid)
        return seen is not None and seen.started == process.started and not seen.zombie


def members(process: ProcessRef) -> list[int]:
    """Processes of an attempt's session. A session's number is not used again while one of its processes lives."""
    leader = look_at(process.pid)
    if leader is not None and leader.started != process.started:
        return []
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            seen = look_at(int(entry.name))
            if seen is not None and seen.session == process.pid and not seen.zombie:
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Seen:
    """What the kernel says of a process. `started`: in its clock ticks."""

    session: int
    started: str
    zombie: bool


def look_at(pid: int) -> Seen | None:
    """A process, None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in brackets and may hold anything.
    fields = stat.rpartition(")")[2].split()
    return Seen(int(fields[_SESSION_FIELD]), fields[_START_TIME_FIELD], fields[0] in "ZX")


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
