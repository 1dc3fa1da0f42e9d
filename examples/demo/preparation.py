"""What a team does before its first run: a model in the store, a repository, a workspace, a project, rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from examples.demo.job import LICENCE, MODEL_NAME
from examples.demo.rest import Rest


class PreparationFailed(Exception):
    """A step before the run went wrong; the message is what the platform said."""


@dataclass(frozen=True)
class Prepared:
    """Everything that a run's configuration names."""

    project: str
    base_model: str
    dataset: str
    heldout: str


def convert_model(models: Path, root: Path) -> Path:
    """SmolLM2 as a Hugging Face folder of the model store; made once, some seconds, and kept.

    Raises:
        PreparationFailed: with the converter's words.
    """
    folder = models / MODEL_NAME
    command = (sys.executable, "-m", "services.trainer.artifacts.convert", "--output", str(folder))
    converter = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if converter.returncode:
        raise PreparationFailed(f"the model could not be converted:\n{converter.stderr[-2000:]}")
    return folder


def make_repository(template: Path, folder: Path) -> Path:
    """A git repository with one commit: the files of `template`."""
    shutil.copytree(template, folder, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    # The user's own git configuration (signing, hooks, templates) has no part in it.
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=Osmosis", "-c", "user.email=demo@osmosis.invalid")
    for arguments in (
        ("init", "--quiet", "--initial-branch", "main"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "Additions, a reward, two tools"),
    ):
        subprocess.run(("git", *identity, *arguments), cwd=folder, env=environment, check=True)
    return folder


def sign_up(address: str, root_key: str, transport: httpx.BaseTransport | None = None) -> tuple[Rest, str]:
    """A new workspace: a client with its first key, and the key as text."""
    operator = Rest(address, root_key, transport)
    workspace = operator.post("/v1/workspaces", {"name": f"demo-{uuid.uuid4().hex[:8]}"})
    key = operator.post(f"/v1/workspaces/{workspace['id']}/keys", {"description": "demonstration"})["key"]
    operator.close()
    return Rest(address, key, transport), key


def prepare(rest: Rest, model: Path, repository: Path, training_rows: str) -> Prepared:
    """Connect and sync the repository, upload rows, register the model; waits until all of it is ready."""
    project = rest.post("/v1/projects", {"name": "calculator", "description": "single-digit additions"})["id"]
    base_model = rest.post("/v1/base-models", {"name": MODEL_NAME, "folder": str(model), "licence": LICENCE})[
        "id"
    ]
    rest.put(f"/v1/projects/{project}/repository", {"url": str(repository)})
    sync = rest.post(f"/v1/projects/{project}/syncs")["id"]
    datasets = [_upload(rest, repository / name) for name in (training_rows, "heldout.jsonl")]
    _ended_well(rest, f"/v1/projects/{project}/syncs/{sync}", "success", "failed")
    for dataset in datasets:
        _ended_well(rest, f"/v1/datasets/{dataset}", "uploaded", "error")
    _ended_well(rest, f"/v1/base-models/{base_model}", "ready", "error")
    return Prepared(project, base_model, datasets[0], datasets[1])


def _upload(rest: Rest, file: Path) -> str:
    dataset = rest.post("/v1/datasets", {"name": file.stem, "file_name": file.name})["id"]
    rest.upload(f"/v1/datasets/{dataset}/content", file.read_bytes())
    return dataset


def _ended_well(rest: Rest, path: str, good: str, bad: str) -> dict[str, Any]:
    thing = rest.wait(path, lambda seen: seen["status"] in (good, bad))
    if thing["status"] == bad:
        report = thing.get("report") or {}
        raise PreparationFailed(
            f"{path}: {thing.get('error') or thing.get('errors') or report.get('errors')}"
        )
    return thing
