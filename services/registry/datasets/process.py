"""Validation in a process of its own, with limits on memory, processor time and file size.

Guaranteed: whatever a file does to a parser (a Parquet column that unpacks to any size, a crash in native code), the
service stays up and the file gets an error. Also the entry of that process: `python -m services.registry.datasets.process`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, cast

from libs.common.contracts.datasets import DatasetFormat, DatasetReport, RowError
from services.registry.datasets.limits import GIB, MIB, Limits, limits_for
from services.registry.datasets.validation import Outcome, validate

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class ProcessLimits:
    """`memory` in bytes of address space, `seconds` of processor time and of wall time."""

    memory: int = 2 * GIB
    seconds: int = 1200


@dataclass(frozen=True)
class Validated:
    """An outcome, and where the canonical form lies when it is valid."""

    outcome: Outcome
    content: Path
    index: Path


async def validate_apart(
    source: Path, format: DatasetFormat, folder: Path, limits: ProcessLimits | None = None
) -> Validated:
    """Validate a file into `folder` (`content.jsonl`, `index`); cancelling ends the process."""
    limits = limits or ProcessLimits()
    arguments = (str(source), format, str(folder), str(limits.memory), str(limits.seconds))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.registry.datasets.process",
        *arguments,
        cwd=_ROOT,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(limits.seconds):
            await process.wait()
    except TimeoutError:
        return _ended(folder, f"validation took more than {limits.seconds} s; split the file")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    report = folder / "report.json"
    if process.returncode != 0 or not report.exists():
        return _ended(
            folder, f"reading it needs more than {limits.memory // MIB} MiB of memory, or it is damaged"
        )
    parts: dict[str, Any] = json.loads(report.read_text())
    outcome = Outcome(DatasetReport.model_validate(parts["report"]), parts["preview"])
    return Validated(outcome, folder / "content.jsonl", folder / "index")


def _environment() -> dict[str, str]:
    """Nothing of ours but what Python needs: the parser of a stranger's file sees no secret."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(_ROOT),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def _ended(folder: Path, message: str) -> Validated:
    error = RowError(row=None, field=None, kind="too_large", message=message)
    report = DatasetReport(rows=0, columns=[], errors=[error], warnings=[], counts={"too_large": 1})
    return Validated(Outcome(report, []), folder / "content.jsonl", folder / "index")


def main(arguments: list[str]) -> None:
    """SOURCE FORMAT FOLDER MEMORY SECONDS: validate, and leave `report.json`, `content.jsonl` and `index`."""
    source, format, folder = Path(arguments[0]), cast("DatasetFormat", arguments[1]), Path(arguments[2])
    memory, seconds = int(arguments[3]), int(arguments[4])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    largest = Limits().content_bytes + GIB
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with (
        BufferedReader(FileIO(source), MIB) as stream,
        (folder / "content.jsonl").open("wb", buffering=MIB) as content,
        (folder / "index").open("wb") as index,
    ):
        outcome = validate(stream, format, content, index, limits_for(source.stat().st_size))
    parts = {"report": outcome.report.model_dump(mode="json"), "preview": outcome.preview}
    (folder / "report.json").write_text(json.dumps(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
