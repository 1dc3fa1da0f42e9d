"""Folders with models on the operator's machine: which may be named, and which of their files are taken.

Guaranteed: a user reaches nothing outside of the roots, also not through symbolic links; weights are taken as
safetensors alone, since other formats run code when they are loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from libs.common.errors import FieldError, Invalid

_SUFFIXES = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model"})
_NAMES = frozenset({"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "README.md"})
MAX_FILES = 2000


def find_folder(name: str, roots: Sequence[Path]) -> Path:
    """The folder that a name in a root, or a path below one, means.

    Raises:
        Invalid: there is none.
    """
    for root in roots:
        candidate = root / name
        if "\0" not in name and candidate.is_dir() and _is_below(candidate, [root]) and candidate != root:
            return candidate
    message = f"there is no folder {name[:200]!r} in the model store or below a model root of the operator"
    raise Invalid(message, fields=[FieldError("folder", message)])


def chosen_files(folder: Path, roots: Sequence[Path]) -> Mapping[str, Path]:
    """Files to take, by name: configuration, tokenizer, safetensors weights, licence.

    Raises:
        Invalid: it is no Hugging Face folder with safetensors weights, or a link leads out of the roots.
    """
    taken: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if not path.is_file() or not (path.suffix in _SUFFIXES or path.name in _NAMES):
            continue
        if not _is_below(path, roots):
            raise _refused(f"{path.name} is a link that leads out of the model roots")
        taken[path.name] = path
    if len(taken) > MAX_FILES:
        raise _refused(f"{len(taken)} files; at most {MAX_FILES} are allowed")
    _check_config(taken)
    if not any(name.endswith(".safetensors") for name in taken):
        raise _refused("there are no *.safetensors weights; convert the model with save_pretrained")
    return taken


def stage(files: Mapping[str, Path], target: Path) -> None:
    """Make a folder that shows just these files."""
    for name, path in files.items():
        (target / name).symlink_to(path.resolve())


def _check_config(taken: Mapping[str, Path]) -> None:
    if "config.json" not in taken:
        raise _refused("there is no config.json; name the folder that holds it")
    try:
        config: object = json.loads(taken["config.json"].read_bytes())
    except (ValueError, RecursionError):
        raise _refused("config.json is not JSON") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise _refused("config.json names no model_type")


def _is_below(path: Path, roots: Sequence[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(root.resolve()) for root in roots)


def _refused(message: str) -> Invalid:
    text = f"the folder cannot be used as a base model: {message}"
    return Invalid(text, fields=[FieldError("folder", message)])
