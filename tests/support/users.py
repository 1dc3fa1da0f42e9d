"""What a user does over REST, in the words of a test: make a workspace, push code, upload rows, start a run, wait."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.platforms import Platform

ENDED = ("completed", "failed", "cancelled")
RUN_TIMEOUT_S = 180

REWARD_LENGTH = '''\
from osmosis_ai import osmosis_reward


@osmosis_reward
def spread(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    """Differs from answer to answer, so that every group has a signal."""
    return (sum(map(ord, solution_str)) % 101) / 100.0
'''


def git_repository(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit of `files` (path to text)."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    commit(folder, "first")
    return folder


def git(folder: Path, *arguments: str) -> str:
    """git with a name and no configuration of the machine's."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.test", "-c", "commit.gpgsign=false")
    command = ("git", *identity, *arguments)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, message: str) -> str:
    """Commit everything; the commit's id."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def rows(count: int, **extra: Any) -> list[dict[str, Any]]:
    """Additions, one a row."""
    return [
        {"system_prompt": "Add.", "user_prompt": f"{i} + {i}?", "ground_truth": str(2 * i), **extra}
        for i in range(count)
    ]


def jsonl(items: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as a file."""
    return "".join(json.dumps(item) + "\n" for item in items).encode()


@dataclass
class User:
    """A workspace's API key and what can be done with it."""

    platform: Platform
    workspace: dict[str, Any]
    key: str

    @classmethod
    def sign_up(cls, platform: Platform) -> User:
        """A new workspace and its first key, made by the operator."""
        with platform.root() as root:
            name = f"team-{uuid.uuid4().hex[:8]}"
            workspace = ok(root.post("/v1/workspaces", json={"name": name}))
            key = ok(root.post(f"/v1/workspaces/{workspace['id']}/keys", json={"description": "first"}))
        return cls(platform, workspace, key["key"])

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Any call, as it is answered."""
        with self.platform.client(self.key) as client:
            return client.request(method, path, **arguments)

    def get(self, path: str, **parameters: Any) -> Any:
        """A read that must succeed."""
        return ok(self.call("GET", path, params=parameters))

    def post(self, path: str, body: Any = None, **arguments: Any) -> Any:
        """A command that must succeed."""
        return ok(self.call("POST", path, json=body if body is not None else {}, **arguments))

    def project(self, name: str = "additions") -> dict[str, Any]:
        """A new project."""
        return self.post("/v1/projects", {"name": f"{name}-{uuid.uuid4().hex[:6]}"})

    def sync(self, project: str, repository: Path) -> dict[str, Any]:
        """Connect a repository and wait for its sync, however it ends."""
        ok(self.call("PUT", f"/v1/projects/{project}/repository", json={"url": str(repository)}))
        return self.resync(project)

    def resync(self, project: str) -> dict[str, Any]:
        """Sync once more and wait."""
        sync = self.post(f"/v1/projects/{project}/syncs")
        return self.wait(
            f"/v1/projects/{project}/syncs/{sync['id']}", lambda s: s["status"] in ("success", "failed")
        )

    def dataset(self, content: bytes, file_name: str = "rows.jsonl") -> dict[str, Any]:
        """Upload a file and wait for its validation, however it ends."""
        dataset = self.post("/v1/datasets", {"name": "rows", "file_name": file_name})
        ok(self.call("PUT", f"/v1/datasets/{dataset['id']}/content", content=content))
        return self.wait(f"/v1/datasets/{dataset['id']}", lambda d: d["status"] in ("uploaded", "error"))

    def base_model(self, folder: str, name: str = "tiny") -> dict[str, Any]:
        """Register a folder of the model store and wait for it."""
        model = self.post("/v1/base-models", {"name": name, "folder": folder, "licence": "apache-2.0"})
        return self.wait(f"/v1/base-models/{model['id']}", lambda m: m["status"] in ("ready", "error"))

    def run(self, project: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run."""
        return self.post(f"/v1/projects/{project}/runs", dict(config))

    def wait_for_run(self, run: str, *statuses: str, timeout_s: float = RUN_TIMEOUT_S) -> dict[str, Any]:
        """Wait until a run has one of the statuses; one that ends otherwise fails the test with its error."""
        wanted = statuses or ENDED
        view = self.wait(
            f"/v1/runs/{run}", lambda r: r["status"] in wanted or r["status"] in ENDED, timeout_s=timeout_s
        )
        assert view["status"] in wanted, f"{view['status']}: {view['error']}\n{self.platform.log_tail()}"
        return view

    def wait_for_step(self, run: str, step: int) -> dict[str, Any]:
        """Wait until a run has done so many steps."""
        return self.wait(f"/v1/runs/{run}", lambda r: r["step"] >= step or r["status"] in ENDED)

    def wait_for_job(self, job: str) -> dict[str, Any]:
        """Wait until a merge or an export has ended well."""
        view = self.wait(f"/v1/jobs/{job}", lambda j: j["status"] in ENDED, timeout_s=RUN_TIMEOUT_S)
        assert view["status"] == "completed", f"{view}\n{self.platform.log_tail()}"
        return view

    def wait(self, path: str, condition: Any, timeout_s: float = 60) -> dict[str, Any]:
        """Read again and again until the condition holds; the gateway may be away in between."""
        deadline = time.monotonic() + timeout_s
        seen: Any = None
        while time.monotonic() < deadline:
            try:
                answer = self.call("GET", path)
                seen = answer.json()
                if answer.status_code == 200 and condition(seen):
                    return seen
            except (httpx.TransportError, FileNotFoundError, ValueError):
                pass
            time.sleep(0.1)
        raise AssertionError(f"{path} not within {timeout_s} s; last: {seen}\n{self.platform.log_tail()}")


def ok(answer: httpx.Response) -> Any:
    """The body of an answer that must be a success."""
    assert answer.is_success, (
        f"{answer.request.method} {answer.request.url} → {answer.status_code} {answer.text}"
    )
    return answer.json() if answer.content else None


def tiny_config(base_model: str, dataset: str, **changes: Any) -> dict[str, Any]:
    """A run of three steps of two groups of four samples, on a tiny model."""
    config: dict[str, Any] = {
        "name": "tiny",
        "base_model": base_model,
        "dataset": dataset,
        "rewards": [{"name": "compute.spread"}],
        "sampling": {"max_response_length": 8},
        "rollout": {"tools": [], "timeout_s": 60},
        "training": {
            "lr": 1e-3,
            "n_samples_per_prompt": 4,
            "global_batch_size": 8,
            "max_steps": 3,
            "lora": {"rank": 4},
        },
        "validation": {"share": 0.25, "max_rows": 4},
        "checkpoints": {"interval": 1, "keep": 50},
        "seed": 7,
    }
    for key, value in changes.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) else value
    return config
