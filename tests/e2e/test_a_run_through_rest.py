"""One run from an empty workspace to a model that loads, through the public REST alone, in both columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.platforms import Platform
from tests.support.tiny_model import make_tiny_model
from tests.support.users import REWARD_LENGTH, User, git_repository, jsonl, rows, tiny_config


@pytest.fixture(scope="module")
def user(platform: Platform) -> User:
    return User.sign_up(platform)


@pytest.fixture(scope="module")
def trained(user: User, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A completed run of three steps and what it was made of."""
    make_tiny_model(user.platform.data_dir / "models" / "tiny")
    model = user.base_model("tiny")
    assert model["status"] == "ready", model
    project = user.project()
    sync = user.sync(
        project["id"],
        git_repository(tmp_path_factory.mktemp("code") / "repo", {"reward_fn/compute.py": REWARD_LENGTH}),
    )
    assert sync["status"] == "success", sync
    dataset = user.dataset(jsonl(rows(16)))
    assert dataset["status"] == "uploaded", dataset
    run = user.run(project["id"], tiny_config(model["id"], dataset["id"]))
    return user.wait_for_run(run["id"], "completed")


def test_the_run_completes_all_its_steps_and_says_how_it_got_there(
    user: User, trained: dict[str, Any]
) -> None:
    assert (trained["step"], trained["total_steps"], trained["attempts"]) == (3, 3, 1)
    transitions = user.get(f"/v1/runs/{trained['id']}/transitions")["items"]
    statuses = [transition["status"] for transition in transitions]
    assert statuses == ["pending", "queued", "provisioning", "running", "completed"]


def test_every_step_has_its_metrics_once(user: User, trained: dict[str, Any]) -> None:
    series = {s["key"]: s["points"] for s in user.get(f"/v1/runs/{trained['id']}/metrics")["series"]}
    assert [point["step"] for point in series["rollout/raw_reward"]] == [1, 2, 3]
    assert [point["step"] for point in series["eval/validation/reward"]] == [0, 3]
    assert trained["validation_before"] == pytest.approx(series["eval/validation/reward"][0]["value"])


def test_rollouts_are_readable_token_by_token(user: User, trained: dict[str, Any]) -> None:
    page = user.get(f"/v1/runs/{trained['id']}/rollouts", phase="train", limit=100)
    assert len(page["items"]) == 3 * 8
    assert all(item["status"] == "completed" and item["reward"] is not None for item in page["items"])
    detail = user.get(f"/v1/rollouts/{page['items'][0]['id']}")
    branch = detail["trajectory"]["branches"][0]
    span = branch["sampled"][0]
    answer = branch["token_ids"][span["start"] : span["start"] + len(span["logprobs"])]
    assert 1 <= len(answer) <= 8
    assert all(logprob <= 0 for logprob in span["logprobs"])
    assert detail["trajectory"]["messages"][-1]["role"] == "assistant"


def test_the_recipe_says_the_run_again(user: User, trained: dict[str, Any]) -> None:
    recipe = user.get(f"/v1/runs/{trained['id']}/recipe")["recipe"]
    assert len(recipe["code"]["commit"]) == 40
    assert recipe["dataset"]["rows"] == 16
    assert recipe["config"]["seed"] == 7


def test_checkpoints_merge_into_a_model_that_exports_and_loads(
    user: User, trained: dict[str, Any], tmp_path: Path
) -> None:
    checkpoints = user.get(f"/v1/runs/{trained['id']}/checkpoints")["items"]
    assert [c["step"] for c in checkpoints] == [3, 2, 1]
    job = user.wait_for_job(user.post(f"/v1/checkpoints/{checkpoints[0]['id']}/merge")["id"])
    user.wait_for_job(user.post(f"/v1/models/{job['model_id']}/export")["id"])
    folder = download(user, job["model_id"], tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    base = AutoModelForCausalLM.from_pretrained(user.platform.data_dir / "models" / "tiny")
    changed = [
        name
        for name, weight in model.state_dict().items()
        if not torch.equal(weight, base.state_dict()[name])
    ]
    assert changed, "training changed no weight"
    assert AutoTokenizer.from_pretrained(folder)("2 + 2?")["input_ids"]
    assert (folder / "README.md").read_text().startswith("---\n")
    assert not list(folder.glob("*.bin")) and list(folder.glob("*.safetensors"))


def download(user: User, model: str, folder: Path) -> Path:
    """Every file of an exported model, through the API."""
    for file in user.get(f"/v1/models/{model}/files")["files"]:
        answer = user.call("GET", f"/v1/models/{model}/files/{file['path']}")
        assert answer.status_code == 200
        target = folder / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(answer.content)
    return folder


def test_the_events_of_the_run_are_streamed_in_order_and_resume_without_gap(
    user: User, trained: dict[str, Any]
) -> None:
    everything = events_until_completed(user, trained["id"])
    ids = [event_id for event_id, _ in everything]
    middle = len(ids) // 2
    rest = events_until_completed(user, trained["id"], last=ids[middle])
    assert [event_id for event_id, _ in rest] == ids[middle + 1 :]
    about_run = [e["type"] for _, e in everything if e["subject"] == trained["id"]]
    order = [kind.removeprefix("osmosis.").removesuffix(".v1") for kind in about_run if ".run." in kind]
    assert order == ["run.created", "run.queued", "run.provisioning", "run.running", "run.completed"]


def events_until_completed(user: User, run: str, last: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The stream's events up to the run's end, as (id, CloudEvent)."""
    headers = {"Last-Event-ID": last} if last else {}
    seen: list[tuple[str, dict[str, Any]]] = []
    with (
        user.platform.client(user.key) as client,
        client.stream("GET", "/v1/events", headers=headers) as stream,
    ):
        event_id = ""
        for line in stream.iter_lines():
            if line.startswith("id:"):
                event_id = line[3:].strip()
            elif line.startswith("data:"):
                event = json.loads(line[5:])
                seen.append((event_id, event))
                if event["type"] == "osmosis.run.completed.v1" and event["subject"] == run:
                    return seen
    raise AssertionError(f"the stream ended before run.completed: {[e['type'] for _, e in seen]}")


def test_a_stranger_finds_nothing_of_it(user: User, trained: dict[str, Any]) -> None:
    stranger = User.sign_up(user.platform)
    for path in ("", "/metrics", "/rollouts", "/checkpoints", "/recipe", "/transitions"):
        assert stranger.call("GET", f"/v1/runs/{trained['id']}{path}").status_code == 404
    assert stranger.get("/v1/runs")["items"] == []


def test_without_a_key_every_door_is_shut(platform: Platform) -> None:
    answer = httpx.get(f"{platform.url}/v1/runs")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("application/problem+json")
