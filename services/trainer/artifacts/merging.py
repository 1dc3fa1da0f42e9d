"""Merging an adapter into its base model: a folder of full weights."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging


def merge_adapter(base: Path, adapter: Path, output: Path) -> Path:
    """Write `base` with the adapter's change added to its weights, tokenizer and chat template included.

    The sum is made in float32 and stored in the type that the base is stored in.

    Raises:
        ValueError: the adapter does not belong to this base model.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    stored = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True).dtype
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    try:
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)  # pyright: ignore[reportCallIssue]
    except (RuntimeError, KeyError) as error:
        raise ValueError(f"the checkpoint's adapter does not fit the base model: {error}") from error
    output.mkdir(parents=True, exist_ok=True)
    merged.to(stored).save_pretrained(output)
    AutoTokenizer.from_pretrained(base, local_files_only=True).save_pretrained(output)
    return output
