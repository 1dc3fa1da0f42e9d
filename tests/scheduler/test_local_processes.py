"""Attempts as real processes of this machine: how they end, what dies with them, what they are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from libs.common.settings import Settings
from services.scheduler.backends import ProcessRef, Start
from services.scheduler.backends.local import LocalProcesses, members
from tests.scheduler import children

ROOT = Path(__file__).parent.parent.parent
START = Start("lease_1", "run_1", 2, ("cpu:0",))
SECRET = "the-secret-of-this-deployment"


class Node:
    """A backend with the processes that it started, which do not outlive the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[ProcessRef] = []
        self.backend = LocalProcesses(Settings(data_dir=folder))

    def start(self, command: tuple[str, ...], **settings: object) -> ProcessRef:
        self.backend = LocalProcesses(Settings(data_dir=self.folder, **settings), command)  # type: ignore[arg-type]
        process = self.backend.start(START, "http://127.0.0.1:1")
        self.started.append(process)
        return process

    @property
    def output(self) -> str:
        return (self.folder / "attempts" / "run_1-2.log").read_text()

    def said(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.output


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for process in made.started:
        made.backend.kill(process)


def until(condition: Callable[[], object], timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def test_a_process_that_ends_well_has_said_its_end(node: Node):
    process = node.start(children.ENDS_WELL)
    until(lambda: not node.backend.alive(process))
    ended = node.backend.ended(process)
    assert ended is not None
    assert (ended.said, ended.text) == (True, "its process ended with status 0")


def test_a_process_that_fails_says_with_which_status(node: Node):
    process = node.start(children.FAILS)
    until(lambda: not node.backend.alive(process))
    ended = node.backend.ended(process)
    assert ended is not None
    assert (ended.said, ended.text) == (False, "its process ended with status 3")


def test_a_process_that_runs_has_not_ended(node: Node):
    process = node.start(children.SLEEPS)
    assert node.backend.alive(process)
    assert node.backend.ended(process) is None
    node.backend.terminate(process)
    until(lambda: not node.backend.alive(process))
    ended = node.backend.ended(process)
    assert ended is not None
    assert ended.text == "its process was ended by SIGTERM"


def test_a_process_that_ignores_sigterm_is_killed(node: Node):
    process = node.start(children.IGNORES_SIGTERM)
    until(node.said("deaf"))
    node.backend.terminate(process)
    assert node.backend.alive(process)
    node.backend.kill(process)
    until(lambda: not node.backend.alive(process))


def test_what_an_attempt_started_ends_with_it(node: Node):
    process = node.start(children.FORKS)
    until(node.said("forked"))
    family = members(process)
    assert len(family) == 2
    node.backend.kill(process)
    until(lambda: not node.backend.alive(process))
    until(lambda: not any(psutil.pid_exists(pid) and _runs(pid) for pid in family))


def test_what_an_attempt_left_behind_is_killed_before_its_devices_are_free(node: Node):
    process = node.start(children.LEAVES_A_CHILD)
    until(lambda: node.backend.ended(process) is not None)
    left = members(process)
    assert len(left) == 1
    until(lambda: not node.backend.alive(process))
    assert not _runs(left[0])


def test_a_number_used_again_is_another_process(node: Node):
    process = node.start(children.SLEEPS)
    impostor = ProcessRef(process.pid, "1")
    assert not node.backend.alive(impostor)
    node.backend.kill(impostor)
    assert node.backend.alive(process), "a stranger under the old number is left alone"


def test_another_life_of_the_scheduler_can_end_a_process_that_it_did_not_start(node: Node):
    process = node.start(children.SLEEPS)
    other = LocalProcesses(Settings(data_dir=node.folder))
    assert other.alive(process)
    other.kill(process)
    until(lambda: not other.alive(process))
    assert not node.backend.alive(process)


def test_an_attempt_dies_with_its_scheduler_whatever_kills_that_one(tmp_path: Path):
    program = f"""
import time
from pathlib import Path
from libs.common.settings import Settings
from services.scheduler.backends import Start
from services.scheduler.backends.local import LocalProcesses
backend = LocalProcesses(Settings(data_dir=Path({str(tmp_path)!r})), {children.IGNORES_SIGTERM!r})
print(backend.start(Start("lease_1", "run_1", 2, ("cpu:0",)), "http://127.0.0.1:1").pid, flush=True)
time.sleep(300)
"""
    with subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, cwd=ROOT) as scheduler:
        try:
            assert scheduler.stdout is not None
            pid = int(scheduler.stdout.readline())
            until(lambda: "deaf" in (tmp_path / "attempts" / "run_1-2.log").read_text())
            assert _runs(pid)
        finally:
            scheduler.send_signal(signal.SIGKILL)
    until(lambda: not _runs(pid))


def test_an_attempt_that_is_started_while_its_scheduler_dies_does_not_begin(tmp_path: Path):
    launcher = (sys.executable, "-m", "services.scheduler.backends.launcher", "1", *children.SLEEPS)
    ended = subprocess.run(launcher, capture_output=True, text=True, timeout=20, cwd=ROOT, check=False)
    assert ended.returncode == 1
    assert "the scheduler that started this attempt is gone" in ended.stderr


def test_an_attempt_gets_no_secret_of_the_deployment(node: Node, monkeypatch: pytest.MonkeyPatch):
    secrets = {
        "OSMOSIS_SECRET_KEY": SECRET,
        "OSMOSIS_ROOT_KEY": "osm_root_of_this_deployment",
        "OSMOSIS_BUS_URL": "amqp://user:bus-password@broker/",
        "OSMOSIS_DATABASE_URL": "postgresql://user:database-password@server/osmosis",
        "AWS_SECRET_ACCESS_KEY": "aws-secret-of-the-host",
        "HF_TOKEN": "hf_of_the_operator",
        "OPENAI_API_KEY": "sk-of-the-operator",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    process = node.start(children.PRINTS_ITS_ENVIRONMENT)
    until(lambda: not node.backend.alive(process))
    given = json.loads(node.output)
    assert not set(secrets) & set(given)
    assert not any(value in node.output for value in secrets.values())
    assert given["OSMOSIS_ATTEMPT_WORK_ID"] == "run_1"
    assert given["OSMOSIS_ATTEMPT_EPOCH"] == "2"
    assert given["OSMOSIS_ATTEMPT_DEVICES"] == "cpu:0"
    assert len(given["OSMOSIS_ATTEMPT_TOKEN"]) == 64
    assert given["OSMOSIS_ATTEMPT_TOKEN"] != given["OSMOSIS_ENGINE_TOKEN"]


def test_an_attempt_over_s3_gets_the_store_s_credentials_alone(node: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret-of-the-host")
    backend = LocalProcesses(
        Settings(
            data_dir=node.folder,
            blob_url="s3://bucket/prefix",
            s3_endpoint="http://127.0.0.1:9",
            secret_key=SecretStr(SECRET),
        )
    )
    given = backend.environment(START, "http://127.0.0.1:1")
    assert given["AWS_SECRET_ACCESS_KEY"] == "aws-secret-of-the-host"
    assert given["OSMOSIS_S3_ENDPOINT"] == "http://127.0.0.1:9"
    assert SECRET not in json.dumps(given)


def test_a_token_opens_one_epoch_alone(node: Node):
    backend = LocalProcesses(Settings(data_dir=node.folder, secret_key=SecretStr(SECRET)))
    first = backend.environment(START, "http://t")["OSMOSIS_ATTEMPT_TOKEN"]
    next_epoch = Start("lease_2", "run_1", 3, ("cpu:0",))
    assert backend.environment(next_epoch, "http://t")["OSMOSIS_ATTEMPT_TOKEN"] != first


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
