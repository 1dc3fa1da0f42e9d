"""Bad input through the public door: each gets a clear error that names the place, and the services stay up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.platforms import Platform
from tests.support.tiny_model import make_tiny_model
from tests.support.users import REWARD_LENGTH, User, git_repository, jsonl, rows, tiny_config


@pytest.fixture(scope="module")
def user(platform: Platform) -> User:
    return User.sign_up(platform)


@pytest.fixture(autouse=True)
def the_platform_stays_up(platform: Platform):
    yield
    with platform.root() as root:
        assert root.get("/ready").status_code == 200
        assert all(process.poll() is None for process in platform.processes)


def test_a_broken_line_is_reported_with_its_row(user: User) -> None:
    dataset = user.dataset(jsonl(rows(2)) + b'{"user_prompt": \n' + jsonl(rows(1)))
    assert dataset["status"] == "error"
    first = dataset["report"]["errors"][0]
    assert first["row"] == 2
    assert "JSON" in first["message"]


def test_a_missing_column_is_reported_with_row_and_field(user: User) -> None:
    bad = [{"system_prompt": "Add.", "user_prompt": "1 + 1?"}]
    dataset = user.dataset(jsonl([*rows(3), *bad]))
    assert dataset["status"] == "error"
    assert (dataset["report"]["errors"][0]["row"], dataset["report"]["errors"][0]["field"]) == (
        3,
        "ground_truth",
    )


def test_an_invalid_dataset_cannot_be_trained_on(user: User) -> None:
    dataset = user.dataset(b"not json\n")
    answer = user.call(
        "POST", f"/v1/projects/{user.project()['id']}/runs", json=tiny_config("nope", dataset["id"])
    )
    assert answer.status_code == 422
    paths = {error["path"] for error in answer.json()["errors"]}
    assert {"dataset", "base_model"} <= paths


def test_every_fault_of_a_configuration_is_reported_at_once(user: User) -> None:
    config = tiny_config("nope", "nope", sampling={"temperature": -1}, training={"lr": "fast"}, colour="red")
    answer = user.call("POST", f"/v1/projects/{user.project()['id']}/runs", json=config)
    assert answer.status_code == 422
    paths = {error["path"] for error in answer.json()["errors"]}
    assert {"sampling.temperature", "training.lr", "colour"} <= paths


BAD_REPOSITORIES: list[tuple[str, dict[str, str], str]] = [
    ("without the folders", {"README.md": "nothing here"}, "reward_fn"),
    ("with a syntax error", {"reward_fn/compute.py": "def f(:\n    pass\n"}, "syntax"),
]


@pytest.mark.parametrize(
    ("what", "files", "said"), BAD_REPOSITORIES, ids=[what for what, _, _ in BAD_REPOSITORIES]
)
def test_a_repository_that_is_wrong_fails_its_sync(
    user: User, tmp_path: Path, what: str, files: dict[str, str], said: str
) -> None:
    sync = user.sync(user.project()["id"], git_repository(tmp_path / "repo", files))
    assert sync["status"] == "failed", what
    assert said in str(sync["errors"]).lower()


def test_a_syntax_error_is_reported_with_file_and_line(user: User, tmp_path: Path) -> None:
    files = {"reward_fn/good.py": REWARD_LENGTH, "reward_fn/bad.py": "x = 1\ndef f(:\n    pass\n"}
    sync = user.sync(user.project()["id"], git_repository(tmp_path / "repo", files))
    errors = [(error["file"], error["line"]) for error in sync["errors"]]
    assert ("reward_fn/bad.py", 2) in errors
    assert "good.spread" in [finding["name"] for finding in sync["findings"]]


def test_a_symlink_out_of_the_tree_fails_the_sync(user: User, tmp_path: Path) -> None:
    repository = git_repository(tmp_path / "repo", {"reward_fn/compute.py": REWARD_LENGTH})
    os.symlink("/etc/passwd", repository / "reward_fn" / "secrets.py")
    from tests.support.users import commit

    commit(repository, "a way out")
    sync = user.sync(user.project()["id"], repository)
    assert sync["status"] == "failed"
    assert "reward_fn/secrets.py" in str(sync["errors"])


BAD_REWARDS: dict[str, tuple[str, str]] = {
    "raises": ('raise ValueError("broken on purpose")', "broken on purpose"),
    "returns an int": ("return 1", "float"),
    "loops for ever": ("while True: pass", "time"),
    "prints 100 MB": ('print("x" * 100_000_000); raise ValueError("after much output")', ""),
    "opens a socket": ("import socket; socket.create_connection(('127.0.0.1', 5672), 2)", ""),
    "reads the passwords": ("return float(len(open('/etc/passwd').read()))", ""),
    "reads the environment": (
        "import os; secrets = [k for k in os.environ if 'OSMOSIS' in k or 'AWS' in k or 'KEY' in k]\n"
        "    if secrets: return 1.0\n"
        "    raise ValueError('nothing to see')",
        "nothing to see",
    ),
}


@pytest.fixture(scope="module")
def inputs(user: User) -> dict[str, Any]:
    """A model and a dataset that are fine."""
    make_tiny_model(user.platform.data_dir / "models" / "tiny")
    return {"model": user.base_model("tiny")["id"], "dataset": user.dataset(jsonl(rows(8)))["id"]}


@pytest.mark.parametrize("what", BAD_REWARDS)
def test_a_bad_reward_function_fails_its_run_and_is_never_a_zero(
    user: User, inputs: dict[str, Any], tmp_path: Path, what: str
) -> None:
    body, said = BAD_REWARDS[what]
    source = (
        "from osmosis_ai import osmosis_reward\n\n\n@osmosis_reward\n"
        "def spread(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:\n"
        f"    {body}\n"
    )
    project = user.project()
    sync = user.sync(project["id"], git_repository(tmp_path / "repo", {"reward_fn/compute.py": source}))
    assert sync["status"] == "success", sync
    config = tiny_config(
        inputs["model"],
        inputs["dataset"],
        scoring={"timeout_s": 1},
        validation={"share": 0.0, "at_start": False, "at_end": False},
        training={"global_batch_size": 4},
    )
    config["scoring"] = {"timeout_s": 1}
    run = user.run(project["id"], config)
    ended = user.wait_for_run(run["id"], "failed")
    assert "compute.spread" in ended["error"]
    assert said in ended["error"]
    rollouts = user.get(f"/v1/runs/{run['id']}/rollouts")["items"]
    assert len(rollouts) == 4
    assert all(rollout["reward"] is None for rollout in rollouts)
    detail = user.get(f"/v1/rollouts/{rollouts[0]['id']}")["trajectory"]["components"][0]
    assert detail["value"] is None and detail["error"]
    assert len(detail["output"]) < 100_000
