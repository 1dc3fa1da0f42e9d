"""Runs a command with a RabbitMQ and a PostgreSQL at hand: `python -m tests.support.services -- pytest …`.

Those named by OSMOSIS_TEST_AMQP_URL and OSMOSIS_TEST_POSTGRES_URL, or running on this machine, are used. What is missing
is started: as root from Debian's packages, else in containers of docker or podman. Where neither can be had the run
fails and says so; nothing is ever skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

START_TIMEOUT_S = 120


@dataclass(frozen=True)
class Needed:
    """A server that the tests need, and how to get it."""

    name: str
    variable: str
    url: str
    greeting: bytes
    package: str
    start: tuple[str, ...]
    image: str
    port: int
    container_environment: tuple[str, ...]


def _postgres_start() -> tuple[str, ...]:
    return ("sh", "-c", "pg_ctlcluster --skip-systemctl-redirect $(ls /etc/postgresql | tail -1) main start")


RABBITMQ = Needed(
    name="RabbitMQ",
    variable="OSMOSIS_TEST_AMQP_URL",
    url="amqp://guest:guest@127.0.0.1:5672/",
    greeting=b"AMQP\x00\x00\x09\x01",
    package="rabbitmq-server",
    start=("rabbitmq-server", "-detached"),
    image="docker.io/library/rabbitmq:3.13",
    port=5672,
    container_environment=(),
)
POSTGRES = Needed(
    name="PostgreSQL",
    variable="OSMOSIS_TEST_POSTGRES_URL",
    url="postgresql://postgres@127.0.0.1:5432/postgres",
    # SSLRequest: eight bytes that every server answers with one.
    greeting=b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
    package="postgresql",
    start=_postgres_start(),
    image="docker.io/library/postgres:16",
    port=5432,
    container_environment=("--env", "POSTGRES_HOST_AUTH_METHOD=trust"),
)


def answers(needed: Needed, url: str) -> bool:
    """Whether a server of this kind speaks at the address."""
    parts = urlsplit(url)
    try:
        with socket.create_connection(
            (parts.hostname or "127.0.0.1", parts.port or needed.port), timeout=2
        ) as peer:
            peer.settimeout(2)
            peer.sendall(needed.greeting)
            return bool(peer.recv(1))
    except OSError:
        return False


def ensure(needed: Needed) -> str:
    """The address of a running server, started here where none runs.

    Raises:
        SystemExit: there is none and none can be started.
    """
    url = os.environ.get(needed.variable)
    if url is not None:
        if answers(needed, url):
            return url
        sys.exit(f"{needed.name} does not answer at the address in {needed.variable}")
    if answers(needed, needed.url) or _start_package(needed) or _start_container(needed):
        return needed.url
    sys.exit(
        f"the tests need {needed.name}: none runs on this machine, and it could be started neither from Debian's"
        f" packages (that needs root) nor with docker or podman. Start one and name it in {needed.variable}."
    )


def _start_package(needed: Needed) -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print(f"tests: starting {needed.name} from Debian's packages", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if shutil.which(needed.start[0]) is None or not _installed(needed.package):
        for command in (("apt-get", "-qq", "update"), ("apt-get", "-qq", "install", "-y", needed.package)):
            if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
                return False
    if answers(needed, needed.url):
        return True
    subprocess.run(needed.start, check=False, stdout=subprocess.DEVNULL)
    if not _comes_up(needed):
        return False
    if needed is POSTGRES:
        _trust_local_postgres()
    return True


def _installed(package: str) -> bool:
    query = subprocess.run(("dpkg", "-s", package), capture_output=True, check=False)
    return query.returncode == 0


def _trust_local_postgres() -> None:
    """Let this machine's tests in without a password: a server that was just installed asks for one on TCP."""
    probe = subprocess.run(("psql", POSTGRES.url, "-c", "select 1"), capture_output=True, check=False)
    if probe.returncode == 0:
        return
    for configuration in Path("/etc/postgresql").glob("*/main/pg_hba.conf"):
        rule = "host all all 127.0.0.1/32 trust\n"
        configuration.write_text(rule + configuration.read_text())
    reload = "pg_ctlcluster --skip-systemctl-redirect $(ls /etc/postgresql | tail -1) main reload"
    subprocess.run(("sh", "-c", reload), check=False)


def _start_container(needed: Needed) -> bool:
    for engine in ("docker", "podman"):
        if shutil.which(engine) is None:
            continue
        name = f"osmosis-test-{needed.name.lower()}"
        publish = f"127.0.0.1:{needed.port}:{needed.port}"
        subprocess.run((engine, "rm", "--force", name), capture_output=True, check=False)
        command = (engine, "run", "--detach", "--name", name, "--publish", publish)
        run = subprocess.run(
            (*command, *needed.container_environment, needed.image), capture_output=True, check=False
        )
        if run.returncode == 0 and _comes_up(needed):
            return True
    return False


def _comes_up(needed: Needed) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if answers(needed, needed.url):
            return True
        time.sleep(0.5)
    return False


def main() -> None:
    """Ensure both, then become the command after `--`."""
    command = sys.argv[sys.argv.index("--") + 1 :]
    for needed in (RABBITMQ, POSTGRES):
        os.environ[needed.variable] = ensure(needed)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
