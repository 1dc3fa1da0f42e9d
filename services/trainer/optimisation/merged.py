"""Base and adapter as one set of weights: the same bits whether the engine samples from them or a folder holds them.

Guaranteed: a merged model that is saved in the type that the policy was sampled in is the policy that was sampled.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

from services.trainer.optimisation.rounding import UnbiasedRounding

ADAPTER = "default"


def adapted_layers(model: PeftModel) -> list[tuple[str, Any]]:
    """Layers with an adapter, by their name in the base model."""
    inner = model.get_base_model()
    return [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, LoraLayer)]


@torch.no_grad()
def write_merged(model: PeftModel, target: Any) -> None:
    """Put base weight plus adapter, summed in float32, into the layers of `target` that `model` has adapters for."""
    rounding = UnbiasedRounding(target.device)
    for place, (name, layer) in enumerate(adapted_layers(model)):
        merged = layer.get_delta_weight(ADAPTER).float().add_(layer.get_base_layer().weight)
        rounding.into(target.get_submodule(name).weight.data, merged.contiguous(), place)
