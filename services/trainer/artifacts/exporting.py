"""A merged model as a Hugging Face folder: weights, configuration, tokenizer, and a card that says how it was made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CARD = "README.md"
RECIPE = "recipe.json"


class NotAModel(Exception):
    """The folder is not a Hugging Face model in safetensors."""


@dataclass(frozen=True)
class ModelCard:
    """What the card says. `recipe` is the run's frozen recipe in JSON, `metrics` the last value of each metric."""

    name: str
    base_model: str
    licence: str
    recipe: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def text(self) -> str:
        """The card: YAML front matter as the hub reads it, then prose and tables."""
        header = {
            "license": self.licence,
            "base_model": self.base_model,
            "library_name": "transformers",
            "pipeline_tag": "text-generation",
            "tags": ["osmosis", "reinforcement-learning", "grpo"],
        }
        front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in header.items())
        config = self.recipe.get("config", {})
        parts = [
            f"---\n{front}\n---\n\n# {self.name}\n",
            f"{self.base_model}, trained further with reinforcement learning by Osmosis and merged.\n",
        ]
        if self.metrics:
            parts.append(_table("Metrics", ("metric", "last value"), sorted(self.metrics.items())))
        for title in ("training", "sampling", "rollout"):
            if config.get(title):
                parts.append(_table(title.capitalize(), ("setting", "value"), sorted(config[title].items())))
        parts.append(f"The whole recipe is in `{RECIPE}`.\n")
        return "\n".join(parts)


def export_folder(model: Path, output: Path, card: ModelCard) -> Path:
    """Copy a merged model and add its card and recipe.

    Raises:
        NotAModel: configuration or safetensors weights are missing.
    """
    if not (model / "config.json").exists() or not list(model.glob("*.safetensors")):
        raise NotAModel("the merged model has no config.json or no safetensors weights")
    output.mkdir(parents=True, exist_ok=True)
    for file in sorted(model.iterdir()):
        if file.is_file():
            shutil.copyfile(file, output / file.name)
    (output / RECIPE).write_text(json.dumps(_plain(card.recipe), indent=2))
    (output / CARD).write_text(card.text())
    return output


def _plain(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe as plain data."""
    return json.loads(json.dumps(dict(recipe), default=str))


def _table(title: str, head: tuple[str, str], rows: list[tuple[str, Any]]) -> str:
    def cell(value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"## {title}\n", f"| {head[0]} | {head[1]} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {cell(name)} | {cell(value)} |" for name, value in rows), ""])
