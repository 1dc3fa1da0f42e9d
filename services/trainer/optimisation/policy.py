"""The policy in its two shapes: base and adapter to train, merged weights to sample from.

Guaranteed: the weights that are trained never carry a merge's rounding: the sampling model has merged copies of the
adapted weights, made anew for every version, and shares all others with the trained model.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import AutoModelForCausalLM, AutoTokenizer

from libs.common.contracts.optimisation import LoraConfig
from services.trainer.engine.batching import BatchingEngine
from services.trainer.optimisation.job import TrainingJob

ADAPTER = "default"


@dataclass
class Policy:
    """Model, tokenizer and engine of one attempt."""

    model: PeftModel
    tokenizer: Any
    engine: BatchingEngine
    sampler: Any

    @classmethod
    def open(cls, job: TrainingJob) -> Policy:
        """Load the base model and put a fresh adapter on it; the engine samples from version `from_step`.

        A fresh adapter changes nothing (its second factor is zero): version 0 samples as the base model does.
        """
        tokenizer = AutoTokenizer.from_pretrained(job.base_model)
        torch.manual_seed(job.config.seed)
        trained = load_model(job.base_model, job.device)
        sampler = load_model(job.base_model, job.device).eval()
        sampler.requires_grad_(False)
        model = get_peft_model(trained, lora_config(job.config.training.lora))
        _share_what_is_not_adapted(model, sampler)
        context = int(getattr(trained.config, "max_position_embeddings", 1 << 20))
        engine = BatchingEngine(sampler, tokenizer, context_length=context, version=job.from_step)
        return cls(model, tokenizer, engine, sampler)

    def publish(self, version: int) -> None:
        """Merge the adapter into the sampling weights: from now on the engine samples from `version`."""
        with self.engine.publishing(version), torch.no_grad():
            for name, layer in adapted_layers(self.model):
                base = layer.get_base_layer().weight
                target = self.sampler.get_submodule(name).weight
                torch.add(base, layer.get_delta_weight(ADAPTER).to(base.dtype), out=target.data)

    def close(self) -> None:
        """Sample no more."""
        self.engine.close()


def load_model(folder: Path, device: str) -> Any:
    """A causal language model: float32 on the CPU, where it is as fast and exact, bfloat16 on a GPU."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    return model.to(device)


def lora_config(config: LoraConfig) -> PeftLoraConfig:
    """PEFT's words for ours."""
    return PeftLoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.scale_numerator,  # pyright: ignore[reportArgumentType] - a float is as good here
        lora_dropout=config.dropout,
        target_modules=config.target_modules,
        bias="none",
    )


def adapted_layers(model: PeftModel) -> list[tuple[str, Any]]:
    """Layers with an adapter, by their name in the base model."""
    inner = model.get_base_model()
    return [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, LoraLayer)]


def _share_what_is_not_adapted(model: PeftModel, sampler: Any) -> None:
    """Let both models hold the same tensors where no adapter stands: half the memory for embeddings and norms."""
    adapted = {f"{name}.weight" for name, _ in adapted_layers(model)}
    frozen = {
        name.replace(".base_layer.", "."): parameter
        for name, parameter in model.get_base_model().named_parameters()
        if ".lora_" not in name
    }
    for name, parameter in sampler.named_parameters():
        if name not in adapted and name in frozen:
            parameter.data = frozen[name].data
