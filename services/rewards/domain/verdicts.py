"""What a call came to. Pure.

Guaranteed here: a verdict has a finite value or an error, never both, and no failure becomes a number. What a sandbox
reports is read as data of an untrusted peer: anything unexpected is a crash of that call alone.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from libs.common.contracts.trajectories import RewardComponent
from services.rewards.sandbox.limits import MIB, Limits

ErrorKind = Literal["exception", "timeout", "memory", "wrong_type", "not_finite", "import", "crash"]

_LONGEST_ERROR = 8192


@dataclass(frozen=True)
class RewardVerdict:
    """One function's verdict on one sample. `output`: what it printed, cut. `duration_ms`: wall time of the call."""

    value: float | None
    error: str | None = None
    error_kind: ErrorKind | None = None
    output: str = ""
    duration_ms: float = 0.0


def no_value(kind: ErrorKind, error: str, output: str = "", duration_ms: float = 0.0) -> RewardVerdict:
    """A verdict without a value, with the reason."""
    return RewardVerdict(None, error[:_LONGEST_ERROR], kind, output, duration_ms)


def read_report(report: dict[str, Any], limits: Limits) -> RewardVerdict:
    """The verdict in a template's report of one call."""
    if "import_error" in report:
        return no_value("import", f"import failed: {report['import_error']}")
    output = _output(report, limits)
    duration = 1000 * _number(report.get("seconds"))
    stopped = _stopped(report, limits)
    if stopped is not None:
        kind, error = stopped
        return no_value(kind, error, output, duration)
    answer = report.get("answer")
    return _read_answer(answer if isinstance(answer, str) else "", limits, output, duration)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _output(report: dict[str, Any], limits: Limits) -> str:
    kept = report.get("output")
    text = kept[: limits.output_bytes] if isinstance(kept, str) else ""
    printed = int(_number(report.get("printed")))
    if printed <= limits.output_bytes:
        return text
    return f"{text}\n[cut: {printed} bytes were printed, the first {limits.output_bytes} are kept]"


def _stopped(report: dict[str, Any], limits: Limits) -> tuple[ErrorKind, str] | None:
    """Why the call's process did not end by itself, if it didn't."""
    if report.get("timed_out") is True:
        return "timeout", f"ran longer than {limits.wall_s:g} seconds and was stopped"
    status = int(_number(report.get("status")))
    number = status & 0x7F
    if number == signal.SIGXCPU or (
        number == signal.SIGKILL and _number(report.get("seconds")) >= limits.cpu_s
    ):
        return "timeout", f"used its {limits.cpu_s} seconds of processor time and was stopped"
    if number:
        return (
            "crash",
            f"was ended by {_signal_name(number)}; is memory of more than {limits.memory_bytes // MIB} MiB needed?",
        )
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read_answer(text: str, limits: Limits, output: str, duration: float) -> RewardVerdict:
    if not text:
        return no_value("crash", "its process ended without a result", output, duration)
    if len(text.encode("utf-8", "replace")) > limits.result_bytes:
        return no_value("crash", f"its result is over {limits.result_bytes} bytes", output, duration)
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return no_value(
            "crash", "its result is unreadable: something else wrote to the result's pipe", output, duration
        )
    answer = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    value = answer.get("value")
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return RewardVerdict(float(value), None, None, output, duration)
    kind, error = answer.get("kind"), answer.get("error")
    if kind in get_args(ErrorKind) and isinstance(error, str):
        return no_value(cast("ErrorKind", kind), error, output, duration)
    return no_value("crash", "its result is not one of a reward function", output, duration)


def component_of(name: str, weight: float, verdict: RewardVerdict) -> RewardComponent:
    """A verdict as it is kept with its trajectory; the error begins with its kind."""
    error = f"{verdict.error_kind}: {verdict.error}" if verdict.error_kind is not None else None
    return RewardComponent(
        name=name,
        value=verdict.value,
        weight=weight,
        duration_ms=round(verdict.duration_ms, 3),
        output=verdict.output,
        error=error,
    )


def weighted_sum(components: Sequence[RewardComponent]) -> float | None:
    """The reward of a trajectory: None when there is no component, or one of them has no value."""
    total = 0.0
    for component in components:
        if component.value is None:
            return None
        total += component.weight * component.value
    return total if components and math.isfinite(total) else None
