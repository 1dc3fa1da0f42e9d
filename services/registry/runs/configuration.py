"""From a user's JSON to a checked run: shape, ranges and everything that it names, with all faults at once.

Pure: the handler looks up what `named` says and gives it as `Known`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from libs.common.contracts.code import Finding
from libs.common.contracts.recipes import (
    BaseModelSnapshot,
    CodeSnapshot,
    DatasetSnapshot,
    RewardRef,
    RunConfig,
)
from libs.common.errors import FieldError, Invalid
from libs.common.service import field_errors

_SHOWN = 10
_UNION_MEMBER = re.compile(r"\.(?:list|literal)\[[^\]]*\]")


@dataclass(frozen=True)
class Named:
    """What a configuration names, as far as it is text."""

    base_model: str | None
    dataset: str | None
    validation_dataset: str | None


@dataclass(frozen=True)
class KnownDataset:
    """A dataset of the workspace; without a snapshot it is not valid (yet), `status` says why."""

    status: str
    snapshot: DatasetSnapshot | None


@dataclass(frozen=True)
class KnownModel:
    """A base model of the workspace; without a snapshot it is not ready (yet), `status` says why."""

    status: str
    snapshot: BaseModelSnapshot | None


@dataclass(frozen=True)
class KnownCode:
    """The project's last good sync."""

    snapshot: CodeSnapshot
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Known:
    """What was found for the names; None for what does not exist in the workspace."""

    base_model: KnownModel | None = None
    dataset: KnownDataset | None = None
    validation_dataset: KnownDataset | None = None
    code: KnownCode | None = None


@dataclass(frozen=True)
class CheckedRun:
    """A configuration and the exact content that it stands for."""

    config: RunConfig
    base_model: BaseModelSnapshot
    dataset: DatasetSnapshot
    validation_dataset: DatasetSnapshot | None
    code: CodeSnapshot
    rewards: list[RewardRef]


def named(config: Mapping[str, Any]) -> Named:
    """The names in a configuration that may be broken elsewhere."""
    validation = _object(config.get("validation"))
    return Named(
        _text(config.get("base_model")), _text(config.get("dataset")), _text(validation.get("dataset"))
    )


def check(config: Mapping[str, Any], known: Known) -> CheckedRun:
    """The checked run.

    Raises:
        Invalid: with every fault and its path (`sampling.temperature`, `rewards.0.name`).
    """
    faults: list[FieldError] = []
    parsed: RunConfig | None = None
    try:
        parsed = RunConfig.model_validate(config)
    except ValidationError as error:
        faults += _without_union_members(field_errors(error))
    broken = {fault.path for fault in faults}
    faults += [fault for fault in _reference_faults(config, known) if fault.path not in broken]
    if parsed is not None:
        faults += _split_faults(parsed, known)
    if faults or parsed is None:
        raise Invalid(f"the configuration has {len(faults)} fault(s)", fields=faults)
    return _checked(parsed, known)


def _without_union_members(faults: Sequence[FieldError]) -> list[FieldError]:
    """Paths as in the user's JSON: where a field takes one of several types, each of them is named in the path."""
    return [FieldError(_UNION_MEMBER.sub("", fault.path), fault.message) for fault in faults]


def _reference_faults(config: Mapping[str, Any], known: Known) -> Iterator[FieldError]:
    names = named(config)
    if names.base_model is not None:
        yield from _model_faults(names.base_model, known.base_model)
    if names.dataset is not None:
        yield from _dataset_faults("dataset", names.dataset, known.dataset)
    if names.validation_dataset is not None:
        yield from _dataset_faults("validation.dataset", names.validation_dataset, known.validation_dataset)
    if known.code is None:
        yield FieldError("rewards", "the project has no synced code; connect a repository and sync it first")
        return
    yield from _reward_faults(config, known.code.findings)
    yield from _tool_faults(config, known.code.findings)


def _model_faults(name: str, found: KnownModel | None) -> Iterator[FieldError]:
    if found is None:
        yield FieldError("base_model", f"no base model {name[:128]!r} in this workspace; register it first")
    elif found.snapshot is None:
        yield FieldError("base_model", f"base model {name[:128]!r} is not ready (status {found.status})")


def _dataset_faults(path: str, name: str, found: KnownDataset | None) -> Iterator[FieldError]:
    if found is None:
        yield FieldError(path, f"no dataset {name[:128]!r} in this workspace; upload it first")
    elif found.snapshot is None:
        yield FieldError(path, f"dataset {name[:128]!r} cannot be trained on (status {found.status})")


def _reward_faults(config: Mapping[str, Any], findings: Sequence[Finding]) -> Iterator[FieldError]:
    functions = _scored(findings)
    seen: set[str] = set()
    for index, choice in enumerate(_list(config.get("rewards"))):
        name = _text(_object(choice).get("name"))
        if name is None:
            continue
        path = f"rewards.{index}.name"
        if name not in functions:
            yield FieldError(path, f"the synced code has no {name[:128]!r}; it has {_listed(functions)}")
        elif name in seen:
            yield FieldError(path, f"{name!r} is chosen twice; add the weights up")
        seen.add(name)


def _tool_faults(config: Mapping[str, Any], findings: Sequence[Finding]) -> Iterator[FieldError]:
    tools = {finding.name for finding in findings if finding.kind == "tool"}
    for index, tool in enumerate(_list(_object(config.get("rollout")).get("tools"))):
        name = _text(tool)
        if name is not None and name not in tools:
            message = f"the synced code has no tool {name[:128]!r}; it has {_listed(tools)}"
            yield FieldError(f"rollout.tools.{index}", message)


def _split_faults(config: RunConfig, known: Known) -> Iterator[FieldError]:
    dataset = known.dataset.snapshot if known.dataset else None
    if dataset and config.validation.dataset is None and config.validation.share > 0 and dataset.rows < 2:
        message = "a dataset of one row cannot be split; use share 0, or a dataset of its own for validation"
        yield FieldError("validation.share", message)


def _checked(config: RunConfig, known: Known) -> CheckedRun:
    # `check` found no fault, so everything that is needed was found.
    assert (
        known.code
        and known.base_model
        and known.base_model.snapshot
        and known.dataset
        and known.dataset.snapshot
    )
    functions = _scored(known.code.findings)
    return CheckedRun(
        config=config,
        base_model=known.base_model.snapshot,
        dataset=known.dataset.snapshot,
        validation_dataset=known.validation_dataset.snapshot if known.validation_dataset else None,
        code=known.code.snapshot,
        rewards=[_reward_ref(functions[choice.name], choice.weight) for choice in config.rewards],
    )


def _reward_ref(finding: Finding, weight: float) -> RewardRef:
    assert finding.function is not None and finding.kind in ("reward", "rubric"), "only functions are scored"
    return RewardRef(
        name=finding.name, kind=finding.kind, file=finding.file, function=finding.function, weight=weight
    )


def _scored(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings if finding.kind in ("reward", "rubric")}


def _listed(names: Mapping[str, Finding] | set[str]) -> str:
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (", …" if len(names) > _SHOWN else "") if shown else "none"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
