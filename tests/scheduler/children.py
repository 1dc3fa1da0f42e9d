"""Small commands that a test starts as attempts."""

from __future__ import annotations

import sys

PYTHON = sys.executable


def script(text: str) -> tuple[str, ...]:
    """A Python one-liner as a command."""
    return (PYTHON, "-S", "-c", text)


ENDS_WELL = script("pass")
FAILS = script("import sys; sys.exit(3)")
SLEEPS = script("import time; time.sleep(300)")
IGNORES_SIGTERM = script(
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"
)
FORKS = script(
    "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); print('forked', flush=True); time.sleep(300)"
)
LEAVES_A_CHILD = script("import subprocess; subprocess.Popen(['sleep', '300'])")
PRINTS_ITS_ENVIRONMENT = script("import json, os; print(json.dumps(dict(os.environ)), flush=True)")
