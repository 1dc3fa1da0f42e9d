"""`python -m examples.demo`: from an empty folder to a model that learned something, and one line of figures."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from examples.demo.conversations import in_short, one_with_a_tool_call, transcript, validation_answers
from examples.demo.embedded import EmbeddedPlatform, PlatformFailed
from examples.demo.following import Following, RunFailed, Snapshot
from examples.demo.job import additions, additions_with_tools
from examples.demo.preparation import (
    PreparationFailed,
    Prepared,
    convert_model,
    make_repository,
    prepare,
    sign_up,
)
from examples.demo.rest import Refused, Rest
from examples.demo.results import (
    ExportFailed,
    answers_of,
    download,
    draw_curve,
    figures,
    merge_and_export,
)
from examples.demo.view import View, duration

ROOT = Path(__file__).parent.parent.parent
WORKSPACE = ROOT / "examples" / "calculator-workspace"
SHOWN_ANSWERS = 4
INTERRUPTED = 130
"""What a shell expects of a program that Ctrl-C ended."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Trains SmolLM2-135M to add, through all seven services and the public REST interface alone.",
    )
    parser.add_argument(
        "--json", action="store_true", help="no live view; the last line of stdout is the result"
    )
    parser.add_argument(
        "--tools", action="store_true", help="a few steps with the MCP tools in the loop instead"
    )
    parser.add_argument("--steps", type=_positive, help="training steps (default: what the job says)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="where the platform keeps its data; output then goes below it (default: .osmosis/demo and demo-output)",
    )
    parser.add_argument("--keep", action="store_true", help="leave the platform up at the end, until Ctrl-C")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


class Demonstration:
    """One run of the demo."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        self.options = options
        self.root = root
        self.view = View(quiet=options.json)
        self.output: Path = (options.data_dir / "output") if options.data_dir else Path("demo-output")
        self.platform = EmbeddedPlatform(options.data_dir or root / ".osmosis" / "demo", root)

    def run(self) -> int:
        """All of it; answers the exit code."""
        with self.platform, tempfile.TemporaryDirectory(prefix="osmosis-demo-") as scratch:
            with self.view.step("converting SmolLM2-135M-Instruct into the model store"):
                model = convert_model(self.platform.models, self.root)
            with self.view.step("starting seven services in one process"):
                self.platform.start()
            rest, key = sign_up(self.platform.address, self.platform.root_key())
            self.view.say(f"  listening at {self.platform.address}")
            with self.view.step("connecting the repository, uploading rows, registering the model"):
                repository = make_repository(WORKSPACE, Path(scratch) / "calculator-workspace")
                rows = "tools.jsonl" if self.options.tools else "train.jsonl"
                prepared = prepare(rest, model, repository, rows)
            code = self._train(rest, prepared)
            if code == 0 and self.options.keep:
                self._stay(key)
            return code

    def _train(self, rest: Rest, prepared: Prepared) -> int:
        run = rest.post(f"/v1/projects/{prepared.project}/runs", self._configuration(prepared))
        following = Following(rest, run)
        try:
            last = self._watch(following)
        except KeyboardInterrupt:
            return self._cancel(following)
        if self.options.tools:
            return self._show_tool_call(rest, last)
        self._deliver(rest, last)
        return 0

    def _configuration(self, prepared: Prepared) -> dict[str, Any]:
        if self.options.tools:
            return additions_with_tools(prepared.base_model, prepared.dataset, self.options.steps)
        return additions(prepared.base_model, prepared.dataset, prepared.heldout, self.options.steps)

    def _watch(self, following: Following) -> Snapshot:
        snapshot: Snapshot | None = None
        with self.view.watching():
            for snapshot in following.snapshots():
                self.platform.check()
                self.view.show(snapshot)
        assert snapshot is not None
        return snapshot

    def _cancel(self, following: Following) -> int:
        self.view.say("cancelling the run (Ctrl-C again stops the platform at once) …")
        run = following.cancel()
        self.view.say(f"the run is {run['status']} after step {run['step']}; its resources are free")
        return INTERRUPTED

    def _deliver(self, rest: Rest, last: Snapshot) -> None:
        run = last.run["id"]
        with self.view.step("merging the adapter and exporting a Hugging Face folder"):
            folder = download(rest, merge_and_export(rest, run), self.output / "model")
        before = validation_answers(rest, run, 0)
        after = validation_answers(rest, run, int(last.run["step"]))
        rows = sorted(before.keys() & after.keys())[:SHOWN_ANSWERS]
        with self.view.step("loading the exported folder with transformers"):
            exported = answers_of(folder, [before[row].prompt for row in rows], self.root)
        self.view.say("\nheld-out questions, never trained on:")
        for row, answer in zip(rows, exported, strict=True):
            self.view.say(f"  before   {in_short(before[row])}")
            self.view.say(f"  after    {in_short(after[row])}")
            self.view.say(f"  exported {before[row].question} → {answer}\n")
        picture = draw_curve(last, self.output / "reward.png")
        result = figures(last, folder)
        self.view.say(
            f"held out {result.heldout_before} → {result.heldout_after} in {duration(result.train_seconds)} of"
            f" training; model in {folder}, curve in {picture}"
        )
        print(result.line(), flush=True)

    def _show_tool_call(self, rest: Rest, last: Snapshot) -> int:
        conversation = one_with_a_tool_call(rest, last.run["id"])
        if conversation is None:
            self.view.say("no rollout called a tool")
            return 1
        self.view.say("\na rollout in which a tool was called:")
        for role, said in transcript(conversation):
            self.view.say(f"  {role:>9}  {said}")
        print(figures(last, None).line(), flush=True)
        return 0

    def _stay(self, key: str) -> None:
        self.view.say(f"\nthe platform stays up at {self.platform.address}; API key {key}; Ctrl-C stops it")
        self.platform.wait()


def _on_terminate(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the demonstration with the services of the tree at `root`; answers the exit code."""
    options = arguments(argv)
    for needed in ("git",):
        if shutil.which(needed) is None:
            print(
                f"demo: {needed} is needed; install it (Debian, Ubuntu: apt-get install {needed})",
                file=sys.stderr,
            )
            return 1
    signal.signal(signal.SIGTERM, _on_terminate)
    demonstration = Demonstration(options, root)
    try:
        return demonstration.run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ExportFailed, PlatformFailed, PreparationFailed, Refused, RunFailed, TimeoutError) as error:
        demonstration.view.console.print(f"demo: {error}", markup=False, style="red")
        return 1


if __name__ == "__main__":
    sys.exit(main())
