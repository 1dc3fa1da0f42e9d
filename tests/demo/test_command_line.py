"""The demonstration as a user starts it, on a platform of nothing but answers: Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree whose `services` are the stand-in."""
    root = tmp_path / "root"
    artifacts = root / "services" / "trainer" / "artifacts"
    artifacts.mkdir(parents=True)
    for package in (root / "services", root / "services" / "trainer", artifacts):
        (package / "__init__.py").touch()
    shutil.copy(Path(__file__).parent / "stand_in.py", root / "services" / "__main__.py")
    (artifacts / "convert.py").write_text("import sys; from pathlib import Path; Path(sys.argv[2]).mkdir()\n")
    return root


def start(root: Path, data: Path) -> subprocess.Popen[str]:
    """`python -m examples.demo --json --data-dir …` over a tree."""
    program = (
        "import sys; from pathlib import Path; from examples.demo.__main__ import main;"
        f"sys.exit(main(['--json', '--data-dir', {str(data)!r}], root=Path({str(root)!r})))"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OSMOSIS_")}
    return subprocess.Popen(
        (sys.executable, "-c", program),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(file: Path, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"no {text!r} in {file.name}"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_cancelled_and_everything_ends(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    demonstration = start(root, tmp_path / "data")
    data = tmp_path / "data" / "platform"
    wait_for(data / "calls.txt", "GET /v1/runs/run_1/rollouts")
    demonstration.send_signal(number)
    out, err = demonstration.communicate(timeout=TIMEOUT_S)
    assert demonstration.returncode == 130, err
    calls = (data / "calls.txt").read_text().splitlines()
    assert calls.count("POST /v1/runs/run_1/cancel") == 1
    assert calls.count("GET /v1/nodes") == 3, "it waits until what the run held is free"
    assert calls.index("POST /v1/runs/run_1/cancel") < calls.index("GET /v1/nodes")
    assert (data / "stopped").exists(), "the platform was stopped in order"
    assert "the run is cancelled" in err
    assert out == ""


def test_an_interruption_before_the_run_stops_the_platform(root: Path, tmp_path: Path) -> None:
    (root / "services" / "__main__.py").write_text("import time; time.sleep(600)\n")
    demonstration = start(root, tmp_path / "data")
    wait_for(tmp_path / "data" / "platform.log", "")
    demonstration.send_signal(signal.SIGINT)
    _, err = demonstration.communicate(timeout=TIMEOUT_S)
    assert demonstration.returncode == 130, err
    assert "Traceback" not in err


def test_a_failure_is_one_line_and_no_traceback(root: Path, tmp_path: Path) -> None:
    (root / "services" / "__main__.py").write_text("raise SystemExit('the port is taken')\n")
    demonstration = start(root, tmp_path / "data")
    _, err = demonstration.communicate(timeout=TIMEOUT_S)
    assert demonstration.returncode == 1
    assert "the port is taken" in err
    assert "platform.log" in err
    assert "Traceback" not in err
