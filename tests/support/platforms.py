"""The whole platform as processes, in both columns of the design, for tests that see it as a user does.

`Embedded`: one process for the seven services, in-process bus, SQLite, folder. `Distributed`: a process a service, over
RabbitMQ, PostgreSQL and an S3 server. Both can be killed hard and started again on the same data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx

from tests.support.databases import create_postgres_database, drop_postgres_database
from tests.support.s3 import start_moto

ROOT = Path(__file__).parent.parent.parent
SERVICES = ("registry", "scheduler", "trainer", "rollout", "rewards", "metrics", "gateway")
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
ROOT_KEY = "osm_root_for-the-tests-only"


class Platform:
    """Processes of the platform over one data folder."""

    commands: tuple[tuple[str, ...], ...]

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("OSMOSIS_")},
            "OSMOSIS_DATA_DIR": str(data_dir),
            "OSMOSIS_PORT": "0",
            "OSMOSIS_GIT_ALLOW_LOCAL": "true",
            "OSMOSIS_ROOT_KEY": ROOT_KEY,
            "OSMOSIS_SECRET_KEY": "a-deployment-secret-for-the-tests-only",
            "OSMOSIS_LEASE_TTL_S": "10",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
            **settings,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    def start(self) -> Self:
        """Start every process and wait until the gateway says it is ready."""
        address = self.data_dir / "run" / "gateway.url"
        address.unlink(missing_ok=True)
        (self.data_dir / "run" / "trainer.url").unlink(missing_ok=True)
        logs = self.data_dir / "logs"
        logs.mkdir(exist_ok=True)
        for command in self.commands:
            self._logs += 1
            with (logs / f"{self._logs:02}-{command[-1]}.log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        (sys.executable, *command),
                        env=self.environment,
                        cwd=self.data_dir,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        wait_until(lambda: address.exists() and self._ready(address.read_text()), self._all_alive)
        return self

    def _ready(self, address: str) -> bool:
        try:
            return httpx.get(f"{address.strip()}/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _all_alive(self) -> None:
        dead = [process.args for process in self.processes if process.poll() is not None]
        assert not dead, f"ended at the start: {dead}\n{self.log_tail()}"

    @property
    def url(self) -> str:
        """The gateway's address."""
        return (self.data_dir / "run" / "gateway.url").read_text().strip()

    def kill(self) -> None:
        """SIGKILL to every process of the platform at once; attempts are left to their fate."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def stop(self) -> None:
        """SIGTERM, and every process must end in time."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        try:
            for process in self.processes:
                process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    def close(self) -> None:
        """Kill what runs and give back what was borrowed."""
        self.kill()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of every process and attempt, for a failing test's message."""
        parts: list[str] = []
        for path in sorted([*self.data_dir.glob("logs/*.log"), *self.data_dir.glob("attempts/*.log")]):
            text = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"== {path.name}\n" + "\n".join(text))
        return "\n".join(parts)

    def root(self) -> httpx.Client:
        """A client with the operator's key."""
        return self.client(ROOT_KEY)

    def client(self, key: str) -> httpx.Client:
        """A client with an API key."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=30)


class Embedded(Platform):
    """The embedded default."""

    commands = (("-m", "services"),)


class Distributed(Platform):
    """Seven processes over RabbitMQ, PostgreSQL and S3."""

    commands = tuple(("-m", f"services.{name}") for name in SERVICES)

    def __init__(self, data_dir: Path, **settings: str) -> None:
        endpoint, self._stop_s3 = start_moto()
        self._database = create_postgres_database()
        self._prefix = f"test-{uuid.uuid4().hex[:8]}-"
        super().__init__(
            data_dir,
            OSMOSIS_BUS_URL=os.environ.get("OSMOSIS_TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/"),
            OSMOSIS_BUS_PREFIX=self._prefix,
            OSMOSIS_DATABASE_URL=self._database,
            OSMOSIS_BLOB_URL=f"s3://osmosis-{self._prefix}bucket/platform",
            OSMOSIS_S3_ENDPOINT=endpoint,
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_DEFAULT_REGION="us-east-1",
            **settings,
        )
        create_bucket(endpoint, f"osmosis-{self._prefix}bucket")

    def close(self) -> None:
        """Also drops the database, the queues and the S3 server."""
        super().close()
        drop_postgres_database(self._database)
        delete_queues(self.environment["OSMOSIS_BUS_URL"], self._prefix)
        self._stop_s3()


COLUMNS: dict[str, type[Platform]] = {"embedded": Embedded, "distributed": Distributed}


def create_bucket(endpoint: str, name: str) -> None:
    """An empty bucket on the test's S3 server."""
    import boto3

    boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    ).create_bucket(Bucket=name)


def delete_queues(url: str, prefix: str) -> None:
    """Queues and exchanges of a test's prefix, gone."""
    from tests.support.bus import delete_prefix

    delete_prefix(url, prefix)


def wait_until(
    condition: Callable[[], object],
    still_sane: Callable[[], None] = lambda: None,
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Ask again and again until the condition holds; `still_sane` may end the wait with its own error."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        still_sane()
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.1)
