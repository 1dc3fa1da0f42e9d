"""Merging an adapter into its base model: a folder of full weights."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from services.trainer.artifacts.checkpoints import ADAPTER_FILE
from services.trainer.optimisation.merged import write_merged


def merge_adapter(base: Path, adapter: Path, output: Path) -> Path:
    """Write `base` with the adapter's change added to its weights, tokenizer and chat template included.

    The sum is made in float32 and stored in the type that the base is stored in. Weights without an adapter stay as
    they are, bit for bit.

    Raises:
        ValueError: the adapter does not belong to this base model, or its files are damaged.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    merged: Any = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    exact = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    write_merged(_adapted(exact, adapter), merged)
    output.mkdir(parents=True, exist_ok=True)
    merged.save_pretrained(output)
    AutoTokenizer.from_pretrained(base, local_files_only=True).save_pretrained(output)
    return output


def _adapted(model: Any, adapter: Path) -> PeftModel:
    try:
        there = load_file(adapter / ADAPTER_FILE).keys()
        adapted = PeftModel.from_pretrained(model, str(adapter))
        # PEFT passes over layers that only one of the two has.
        if strangers := sorted(there ^ get_peft_model_state_dict(adapted).keys()):
            raise ValueError(f"{strangers[0]} is only in one of the two")
    except (OSError, KeyError, RuntimeError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(f"the checkpoint's adapter does not fit the base model: {error}") from error
    return adapted
