"""The sandbox needs no root: the same walls, and a right verdict, for a user without any privilege."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534

_CODE = """
import asyncio, json, os, pathlib, tempfile
from services.rewards.domain.inputs import FunctionRef, RewardInput
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher, Limits, SandboxProject, report_walls

async def main():
    launcher = Launcher("bubblewrap")
    report = await report_walls(launcher)
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "reward_fn").mkdir()
    (folder / "reward_fn" / "f.py").write_text("import os\\ndef f(solution_str, ground_truth, extra_info):\\n    return float(os.getpid() < 100)\\n")
    pools = SandboxPools(launcher, workers=1)
    ref, one = FunctionRef("f.f", "reward_fn/f.py", "f"), RewardInput("s", [], "1")
    [[verdict]] = await pools.call_rewards(SandboxProject(folder, "c"), [ref], [one], Limits(wall_s=20))
    await pools.aclose()
    print(json.dumps({"user": os.getuid(), "missing": report.missing, "value": verdict.value, "error": verdict.error}))

asyncio.run(main())
"""


@pytest.fixture
def stage() -> Iterator[Path]:
    """A folder that everybody can enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="osmosis-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_nobody(stage: Path) -> list[str]:
    """The command for root: interpreter, packages and repository are bound where nobody can read them."""
    packages = sysconfig.get_path("purelib")
    places = {
        sys.base_prefix: stage / "python",
        str(ROOT): stage / "repository",
        packages: stage / "packages",
    }
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    python = stage / "python" / executable.relative_to(sys.base_prefix)
    binds = [f"mkdir {to} && mount --rbind {shlex.quote(what)} {to}" for what, to in places.items()]
    drop = f"exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs"
    environment = (
        f"env -i PYTHONPATH={stage}/repository:{stage}/packages LD_LIBRARY_PATH={stage}/python/lib"
        " PYTHONDONTWRITEBYTECODE=1"
    )
    script = " && ".join(
        [
            f"mount -t tmpfs -o mode=755 tmpfs {stage}",
            *binds,
            f"{drop} {environment} {python} -c {shlex.quote(_CODE)}",
        ]
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def test_an_ordinary_user_has_every_wall_and_a_right_verdict(stage: Path) -> None:
    command = as_nobody(stage) if os.geteuid() == 0 else [sys.executable, "-c", _CODE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["user"] != 0
    assert (said["missing"], said["value"], said["error"]) == ({}, 1.0, None)
