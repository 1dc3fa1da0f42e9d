"""What a run leaves behind: merged, exported, downloaded, loaded; its curve as a picture."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.demo.following import Point, Snapshot
from examples.demo.rest import Json, Rest

ENDED = ("completed", "failed", "cancelled")


class ExportFailed(Exception):
    """Merging, exporting or loading went wrong; the message says how."""


@dataclass(frozen=True)
class Figures:
    """The last line of the demonstration."""

    heldout_before: float | None
    heldout_after: float | None
    train_seconds: float
    steps: int
    samples_per_second: float
    export_dir: str | None

    def line(self) -> str:
        """As one JSON object."""
        return json.dumps(asdict(self))


def figures(last: Snapshot, export_dir: Path | None) -> Figures:
    """The figures of a completed run; `export_dir` is None where nothing was exported."""
    held = last.validations
    return Figures(
        heldout_before=held[0].value if held else None,
        heldout_after=held[-1].value if held else None,
        train_seconds=round(last.train_seconds, 1),
        steps=int(last.run["step"]),
        samples_per_second=round(last.samples_per_second, 3),
        export_dir=str(export_dir) if export_dir else None,
    )


def merge_and_export(rest: Rest, run: str) -> str:
    """Merge the run's newest checkpoint and export it; answers the model's id.

    Raises:
        ExportFailed: a job failed.
    """
    checkpoint = rest.get(f"/v1/runs/{run}/checkpoints", limit=1)["items"][0]
    model = _job(rest, rest.post(f"/v1/checkpoints/{checkpoint['id']}/merge"))["model_id"]
    _job(rest, rest.post(f"/v1/models/{model}/export"))
    return model


def _job(rest: Rest, job: Json) -> Json:
    ended = rest.wait(f"/v1/jobs/{job['id']}", lambda seen: seen["status"] in ENDED)
    if ended["status"] != "completed":
        raise ExportFailed(f"the {ended['kind']} is {ended['status']}: {ended['error']}")
    return ended


def download(rest: Rest, model: str, folder: Path) -> Path:
    """Every file of the exported model below `folder`, in place of what stood there.

    Raises:
        ExportFailed: a file came shorter than announced.
    """
    draft = folder.with_name(f".{folder.name}-coming")
    shutil.rmtree(draft, ignore_errors=True)
    for file in rest.get(f"/v1/models/{model}/files")["files"]:
        size = rest.download(f"/v1/models/{model}/files/{file['path']}", draft / file["path"])
        if size != file["blob"]["size"]:
            raise ExportFailed(f"{file['path']} has {size} bytes instead of {file['blob']['size']}")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder


def answers_of(model: Path, prompts: list[list[Json]], root: Path) -> list[str]:
    """Load the exported folder with transformers, in a process of its own, and let it answer greedily.

    Raises:
        ExportFailed: it does not load, with what transformers said.
    """
    command = (sys.executable, "-m", "examples.demo.answering", str(model))
    loaded = subprocess.run(
        command, cwd=root, input=json.dumps(prompts), capture_output=True, text=True, check=False
    )
    if loaded.returncode:
        raise ExportFailed(f"AutoModelForCausalLM does not load {model}:\n{loaded.stderr[-2000:]}")
    return json.loads(loaded.stdout.splitlines()[-1])


def draw_curve(last: Snapshot, picture: Path) -> Path:
    """The reward of every step, and the held-out reward before and after, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture.parent.mkdir(parents=True, exist_ok=True)
    chart, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    for points, style, label in (
        (last.rewards, "-", "training reward, mean of a step"),
        (last.validations, "o--", "held-out rows"),
    ):
        axes.plot(*_columns(points), style, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("reward")
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(f"{last.run['name']}: {last.samples_per_second:.2f} samples/s")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    chart.tight_layout()
    chart.savefig(picture)
    pyplot.close(chart)
    return picture


def _columns(points: list[Point]) -> tuple[list[int], list[float]]:
    return [point.step for point in points], [point.value for point in points]
