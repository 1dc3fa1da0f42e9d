"""Before the run: a repository, a workspace of one's own, errors in the platform's words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from examples.demo.preparation import PreparationFailed, make_repository, prepare, sign_up
from examples.demo.rest import Refused
from tests.demo.answers import Answers

WORKSPACE = Path(__file__).parent.parent.parent / "examples" / "calculator-workspace"


def test_the_repository_holds_the_example_in_one_commit(tmp_path: Path) -> None:
    folder = make_repository(WORKSPACE, tmp_path / "repo")
    listed = subprocess.run(
        ("git", "ls-tree", "-r", "--name-only", "HEAD"),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"reward_fn/compute_reward.py", "mcp/main.py", "train.jsonl"} <= set(listed.stdout.splitlines())
    assert not any("__pycache__" in name for name in listed.stdout.splitlines())


def ready(tmp_path: Path) -> tuple[Answers, Path]:
    answers = Answers()
    answers["POST /v1/projects"] = {"id": "prj_1"}
    answers["POST /v1/base-models"] = {"id": "mdl_1"}
    answers["PUT /v1/projects/prj_1/repository"] = {"id": "prj_1"}
    answers["POST /v1/projects/prj_1/syncs"] = {"id": "sync_1"}
    answers["GET /v1/projects/prj_1/syncs/sync_1"] = {"status": "success"}
    answers["POST /v1/datasets"] = {"id": "ds_1"}
    answers["PUT /v1/datasets/ds_1/content"] = {"id": "ds_1"}
    answers["GET /v1/datasets/ds_1"] = {"status": "uploaded"}
    answers["GET /v1/base-models/mdl_1"] = {"status": "ready"}
    for name in ("train.jsonl", "heldout.jsonl"):
        (tmp_path / name).write_text("{}\n")
    return answers, tmp_path


def test_everything_is_ready_before_the_run(tmp_path: Path) -> None:
    answers, repository = ready(tmp_path)
    prepared = prepare(answers.rest(), Path("/models/m"), repository, "train.jsonl")
    assert (prepared.project, prepared.base_model, prepared.dataset) == ("prj_1", "mdl_1", "ds_1")
    posts = [request for request in answers.asked if request.method == "POST"]
    keys = [request.headers["Idempotency-Key"] for request in posts]
    assert len(set(keys)) == len(posts)


def test_a_sync_that_fails_is_told_in_the_platforms_words(tmp_path: Path) -> None:
    answers, repository = ready(tmp_path)
    errors = [{"file": "reward_fn/compute.py", "line": 3, "message": "a syntax error"}]
    answers["GET /v1/projects/prj_1/syncs/sync_1"] = {"status": "failed", "errors": errors}
    with pytest.raises(PreparationFailed, match="a syntax error"):
        prepare(answers.rest(), Path("/models/m"), repository, "train.jsonl")


def test_a_refusal_names_every_fault() -> None:
    answers = Answers()
    problem = {
        "title": "The input is not valid",
        "detail": "one fault",
        "errors": [{"path": "name", "message": "taken"}],
    }
    answers["POST /v1/projects"] = httpx.Response(422, json=problem)
    with pytest.raises(Refused, match=r"422 The input is not valid: one fault\n  name: taken"):
        answers.rest().post("/v1/projects", {"name": "a"})


def test_signing_up_goes_on_with_the_new_key() -> None:
    answers = Answers()
    answers["POST /v1/workspaces"] = {"id": "ws_1"}
    answers["POST /v1/workspaces/ws_1/keys"] = {"key": "osm_new"}
    rest, key = sign_up("http://gateway", "osm_root", transport=httpx.MockTransport(answers.handle))
    answers["GET /v1/runs"] = {"items": []}
    rest.get("/v1/runs")
    assert key == "osm_new"
    assert [request.headers["Authorization"] for request in answers.asked] == [
        "Bearer osm_root",
        "Bearer osm_root",
        "Bearer osm_new",
    ]
