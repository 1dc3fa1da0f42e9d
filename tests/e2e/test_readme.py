"""The README's tour, run as it stands: every shell block in order, against `make up`'s platform."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.platforms import ROOT, Embedded
from tests.support.tiny_model import make_tiny_model

TOUR_TIMEOUT_S = 240


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    running = Embedded(tmp_path / ".osmosis", OSMOSIS_ROOT_KEY="osm_root_of-the-tour")
    try:
        yield running.start()
    finally:
        running.close()


def test_the_tour_of_the_api_is_true_line_by_line(embedded: Embedded, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 8
    # What the tour finds in a clone, with a tiny model in the place of the converted one.
    for name in ("examples", "services", "libs", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".osmosis" / "root.key").write_text("osm_root_of-the-tour")
    make_tiny_model(tmp_path / ".osmosis" / "models" / "smollm2")
    script = "set -eu\n" + "\n".join(blocks)
    script = script.replace("http://127.0.0.1:8700", embedded.url)
    script = script.replace("/tmp/calculator", str(tmp_path / "calculator"))
    tour = subprocess.run(
        ("bash", "-c", script),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TOUR_TIMEOUT_S,
        check=False,
    )
    assert tour.returncode == 0, f"{tour.stdout[-3000:]}\n{tour.stderr[-3000:]}\n{embedded.log_tail()}"
    for said in ("compute_reward.last_integer_matches", "rollout/raw_reward", "token_ids", "safetensors"):
        assert said in tour.stdout
    assert "base_model:" in tour.stdout


def test_the_readme_names_only_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / path).exists(), path
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`make ([a-z]+)", text):
        assert target in targets, target
