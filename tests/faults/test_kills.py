"""SIGKILL in the middle of a run: it goes on from its checkpoint, no step counts twice, no fact is lost or applied twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import BOTH_COLUMNS
from tests.support.platforms import Platform, wait_until
from tests.support.tiny_model import make_tiny_model
from tests.support.users import REWARD_LENGTH, User, git_repository, jsonl, rows, tiny_config

STEPS = 6


def start_run(platform: Platform, folder: Path) -> tuple[User, str]:
    """A run of six steps that has done at least two and is at work on the next."""
    user = User.sign_up(platform)
    make_tiny_model(platform.data_dir / "models" / "tiny")
    model = user.base_model("tiny")
    project = user.project()
    user.sync(project["id"], git_repository(folder / "repo", {"reward_fn/compute.py": REWARD_LENGTH}))
    dataset = user.dataset(jsonl(rows(16)))
    config = tiny_config(model["id"], dataset["id"], training={"max_steps": STEPS})
    run = user.run(project["id"], config)
    user.wait_for_step(run["id"], 2)
    return user, run["id"]


def attempts_of(run: str) -> list[psutil.Process]:
    """Processes of the run's attempts on this machine."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("OSMOSIS_ATTEMPT_WORK_ID") == run:
                found.append(process)
        except psutil.Error:
            continue
    return found


def facts(user: User, run: str) -> list[dict[str, Any]]:
    """Every public fact up to the run's completion, as a subscriber sees them."""
    seen: list[dict[str, Any]] = []
    with user.platform.client(user.key) as client, client.stream("GET", "/v1/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                seen.append(json.loads(line[5:]))
                if seen[-1]["type"] == "osmosis.run.completed.v1" and seen[-1]["subject"] == run:
                    return seen
    raise AssertionError("the stream ended early")


def check_that_nothing_was_lost_or_doubled(user: User, run: str) -> None:
    """What a user can see of a run that was interrupted is what they would see of one that was not."""
    view = user.wait_for_run(run, "completed")
    assert (view["step"], view["total_steps"]) == (STEPS, STEPS)
    assert view["attempts"] == 2
    series = {s["key"]: s["points"] for s in user.get(f"/v1/runs/{run}/metrics")["series"]}
    assert [point["step"] for point in series["rollout/raw_reward"]] == list(range(1, STEPS + 1))
    assert [point["step"] for point in series["eval/validation/reward"]] == [0, STEPS]
    steps = [c["step"] for c in user.get(f"/v1/runs/{run}/checkpoints", limit=100)["items"]]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))
    stream = facts(user, run)
    ids = [fact["id"] for fact in stream]
    assert len(ids) == len(set(ids)), "a fact was logged twice"
    assert [f["type"] for f in stream].count("osmosis.run.completed.v1") == 1
    assert_each_step_is_stated_once_an_epoch(stream, run)
    wait_until(lambda: not attempts_of(run))


def assert_each_step_is_stated_once_an_epoch(stream: list[dict[str, Any]], run: str) -> None:
    stepped = [
        (f["data"]["epoch"], f["data"]["phase"], f["data"]["step"])
        for f in stream
        if f["type"] == "osmosis.attempt.stepped.v1" and f["subject"] == run
    ]
    assert len(stepped) == len(set(stepped))
    last_epoch = max(epoch for epoch, _, _ in stepped)
    assert last_epoch == 2
    resumed_at = min(step for epoch, phase, step in stepped if epoch == 2 and phase == "train")
    assert {step for epoch, phase, step in stepped if epoch == 2 and phase == "train"} == set(
        range(resumed_at, STEPS + 1)
    )


@BOTH_COLUMNS
def test_the_platform_is_killed_and_started_again(own_platform: Platform, tmp_path: Path) -> None:
    user, run = start_run(own_platform, tmp_path)
    own_platform.kill()
    own_platform.start()
    check_that_nothing_was_lost_or_doubled(user, run)


@BOTH_COLUMNS
def test_the_attempt_is_killed(own_platform: Platform, tmp_path: Path) -> None:
    user, run = start_run(own_platform, tmp_path)
    processes = attempts_of(run)
    assert processes, "no attempt at work"
    for process in processes:
        process.kill()
    check_that_nothing_was_lost_or_doubled(user, run)


@pytest.mark.parametrize("own_platform", ["embedded"], indirect=True)
def test_a_stopped_platform_leaves_no_process_and_goes_on_at_the_next_start(
    own_platform: Platform, tmp_path: Path
) -> None:
    user, run = start_run(own_platform, tmp_path)
    own_platform.stop()
    assert attempts_of(run) == []
    own_platform.start()
    check_that_nothing_was_lost_or_doubled(user, run)


@pytest.mark.parametrize("own_platform", ["embedded"], indirect=True)
def test_a_cancelled_run_ends_its_attempt_and_frees_the_pool(own_platform: Platform, tmp_path: Path) -> None:
    user, run = start_run(own_platform, tmp_path)
    assert user.post(f"/v1/runs/{run}/cancel")["status"] == "cancelled"
    wait_until(lambda: not attempts_of(run))
    wait_until(lambda: all(node["free"] == node["devices"] for node in user.get("/v1/nodes")["nodes"]))
    assert user.get(f"/v1/runs/{run}")["status"] == "cancelled"


@pytest.mark.parametrize("own_platform", ["embedded"], indirect=True)
def test_a_paused_run_resumes_to_the_same_end(own_platform: Platform, tmp_path: Path) -> None:
    user, run = start_run(own_platform, tmp_path)
    user.post(f"/v1/runs/{run}/pause")
    paused = user.wait_for_run(run, "paused")
    wait_until(lambda: not attempts_of(run))
    user.post(f"/v1/runs/{run}/resume")
    view = user.wait_for_run(run, "completed")
    assert (view["step"], view["attempts"]) == (STEPS, 2)
    assert paused["step"] < STEPS
