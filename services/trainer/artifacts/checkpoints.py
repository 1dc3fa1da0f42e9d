"""Checkpoints as folders: adapter, optimiser, schedule and random states, in safetensors and JSON.

Guaranteed: training that goes on from a checkpoint is, on the CPU in sync mode, bit for bit the training that was not
interrupted. Nothing is pickled: loading a checkpoint runs no code.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.optim.lr_scheduler import LambdaLR

from libs.common.contracts.recipes import RunConfig

ADAPTER_FILE = "adapter_model.safetensors"
OPTIMISER_FILE = "optimizer.safetensors"
RANDOM_FILE = "random.safetensors"
STATE_FILE = "state.json"
FORMAT = 1


class NotACheckpoint(Exception):
    """The folder is no checkpoint of this kind, or does not fit the model."""


def save_checkpoint(
    folder: Path,
    model: PeftModel,
    optimiser: torch.optim.Optimizer,
    scheduler: LambdaLR,
    *,
    step: int,
    base_model: str,
    config: RunConfig,
    metrics: dict[str, float],
) -> None:
    """Write everything that going on from `step` needs into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_contiguous(get_peft_model_state_dict(model)), folder / ADAPTER_FILE)
    _adapter_config(model, base_model).save_pretrained(str(folder))
    save_file(_optimiser_tensors(model, optimiser), folder / OPTIMISER_FILE)
    save_file(_random_tensors(), folder / RANDOM_FILE)
    version, _, gauss = random.getstate()
    state = {
        "format": FORMAT,
        "step": step,
        "base_model": base_model,
        "scheduler": {"last_epoch": scheduler.last_epoch, "last_lr": scheduler.get_last_lr()},
        "random": {"python": [version, gauss], "numpy": _numpy_state()},
        "config": config.model_dump(mode="json"),
        "metrics": metrics,
    }
    (folder / STATE_FILE).write_text(json.dumps(state, indent=2))


def load_checkpoint(
    folder: Path, model: PeftModel, optimiser: torch.optim.Optimizer, scheduler: LambdaLR
) -> int:
    """Put the saved state into place; the step that it is of.

    Raises:
        NotACheckpoint: a part is missing or does not fit.
    """
    try:
        state = json.loads((folder / STATE_FILE).read_text())
        if state["format"] != FORMAT:
            raise ValueError(f"its format is {state['format']}, this version reads {FORMAT}")
        _load_adapter(model, load_file(folder / ADAPTER_FILE))
        _load_optimiser(model, optimiser, load_file(folder / OPTIMISER_FILE))
        _load_random(load_file(folder / RANDOM_FILE), state["random"])
        _load_schedule(optimiser, scheduler, state["scheduler"])
        return int(state["step"])
    except (OSError, LookupError, RuntimeError, TypeError, ValueError, SafetensorError) as error:
        raise NotACheckpoint(
            f"the checkpoint cannot be loaded: {error}; resume from another one, or start the run anew"
        ) from error


def _adapter_config(model: PeftModel, base_model: str) -> Any:
    """The adapter's configuration without a place on this machine, its module names in an order that never changes."""
    config: Any = copy.copy(model.peft_config["default"])
    config.base_model_name_or_path = base_model
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)
    return config


def _load_adapter(model: PeftModel, tensors: dict[str, torch.Tensor]) -> None:
    """PEFT passes over what is missing or too much; here each tensor has to have its place."""
    mine = get_peft_model_state_dict(model)
    if strangers := sorted(mine.keys() ^ tensors.keys()):
        raise ValueError(f"its adapter is one for other layers: {strangers[0]} and {len(strangers) - 1} more")
    if unlike := [name for name, tensor in tensors.items() if tensor.shape != mine[name].shape]:
        raise ValueError(f"its adapter has another size: {unlike[0]} and {len(unlike) - 1} more")
    set_peft_model_state_dict(model, tensors)


def _load_schedule(optimiser: torch.optim.Optimizer, scheduler: LambdaLR, state: dict[str, Any]) -> None:
    scheduler.last_epoch = int(state["last_epoch"])
    scheduler._last_lr = list(state["last_lr"])  # pyright: ignore[reportPrivateUsage]
    for group, lr in zip(optimiser.param_groups, state["last_lr"], strict=True):
        group["lr"] = lr


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _trained(model: PeftModel) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _optimiser_tensors(model: PeftModel, optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state by parameter name: a parameter that was never updated has none."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in _trained(model).items():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = torch.as_tensor(value)
    return _contiguous(tensors)


def _load_optimiser(
    model: PeftModel, optimiser: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]
) -> None:
    parameters = _trained(model)
    for name, tensor in tensors.items():
        parameter_name, _, key = name.rpartition("/")
        parameter = parameters[parameter_name]
        if key != "step" and tensor.shape != parameter.shape:
            raise ValueError(f"its optimiser state is of another size: {name}")
        # The step counter stays on the CPU, as AdamW keeps it.
        device = "cpu" if key == "step" else parameter.device
        optimiser.state[parameter][key] = tensor.to(device)


def _random_tensors() -> dict[str, torch.Tensor]:
    tensors = {
        "torch": torch.random.get_rng_state(),
        "python": torch.tensor(random.getstate()[1], dtype=torch.int64),
        "numpy": torch.from_numpy(np.random.get_state(legacy=False)["state"]["key"].astype(np.int64)),
    }
    if torch.cuda.is_available():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"cuda:{i}"] = state
    return tensors


def _numpy_state() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=False)
    return {
        "pos": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def _load_random(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    torch.random.set_rng_state(tensors["torch"])
    version, gauss = state["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), gauss))
    key = tensors["numpy"].numpy().astype(np.uint32)
    numpy = state["numpy"]
    np.random.set_state(("MT19937", key, numpy["pos"], numpy["has_gauss"], numpy["gauss"]))
    for name, tensor in tensors.items():
        if name.startswith("cuda:") and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensor, int(name.removeprefix("cuda:")))
