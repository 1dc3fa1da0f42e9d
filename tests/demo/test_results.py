"""What is left behind: figures, a folder, a picture."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from examples.demo.following import TRAIN_REWARD, VALIDATION_REWARD, Point, Snapshot
from examples.demo.results import ExportFailed, download, draw_curve, figures, merge_and_export
from tests.demo.answers import Answers, run_view

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
FILES = {"config.json": b"{}", "sub/model.safetensors": bytes(100)}


def completed() -> Snapshot:
    rewards = [Point(step, step / 14, START + timedelta(seconds=20 * step)) for step in range(1, 15)]
    return Snapshot(
        run=run_view(status="completed", step=14, total_steps=14),
        samples_per_step=64,
        running_since=START,
        curves={TRAIN_REWARD: rewards, VALIDATION_REWARD: [Point(0, 0.125, START), Point(14, 0.975, START)]},
    )


def exported() -> Answers:
    answers = Answers()
    answers["GET /v1/models/mdl_1/files"] = {
        "files": [{"path": path, "blob": {"size": len(content)}} for path, content in FILES.items()]
    }
    for path, content in FILES.items():
        answers[f"GET /v1/models/mdl_1/files/{path}"] = httpx.Response(200, content=content)
    return answers


def test_the_last_line_is_one_json_object() -> None:
    assert json.loads(figures(completed(), Path("out/model")).line()) == {
        "heldout_before": 0.125,
        "heldout_after": 0.975,
        "train_seconds": 280.0,
        "steps": 14,
        "samples_per_second": 3.2,
        "export_dir": "out/model",
    }


def test_every_file_is_downloaded_in_place_of_what_stood_there(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "stale.bin").write_bytes(b"old")
    download(exported().rest(), "mdl_1", folder)
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert found == FILES


def test_a_short_file_leaves_what_stood_there(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"old")
    answers = exported()
    answers["GET /v1/models/mdl_1/files/sub/model.safetensors"] = httpx.Response(200, content=b"short")
    with pytest.raises(ExportFailed, match="5 bytes instead of 100"):
        download(answers.rest(), "mdl_1", folder)
    assert (folder / "config.json").read_bytes() == b"old"


def test_the_newest_checkpoint_is_merged_and_exported() -> None:
    answers = Answers()
    answers["GET /v1/runs/run_1/checkpoints"] = {"items": [{"id": "ckpt_9"}], "next_cursor": None}
    answers["POST /v1/checkpoints/ckpt_9/merge"] = {"id": "job_1", "model_id": "mdl_1"}
    answers["POST /v1/models/mdl_1/export"] = {"id": "job_2", "model_id": "mdl_1"}
    job = {"kind": "merge", "status": "completed", "model_id": "mdl_1", "error": None}
    answers["GET /v1/jobs/job_1"] = job
    answers["GET /v1/jobs/job_2"] = {**job, "kind": "export"}
    assert merge_and_export(answers.rest(), "run_1") == "mdl_1"
    answers["GET /v1/jobs/job_2"] = {**job, "kind": "export", "status": "failed", "error": "disk full"}
    with pytest.raises(ExportFailed, match="export is failed: disk full"):
        merge_and_export(answers.rest(), "run_1")


def test_the_curve_is_a_picture(tmp_path: Path) -> None:
    picture = draw_curve(completed(), tmp_path / "out" / "reward.png")
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
