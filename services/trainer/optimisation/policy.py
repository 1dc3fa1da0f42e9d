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
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from libs.common.contracts.optimisation import LoraConfig
from services.trainer.engine.attention import attend_grouped_on_cpu
from services.trainer.engine.batching import BatchingEngine
from services.trainer.optimisation.job import TrainingJob
from services.trainer.optimisation.merged import adapted_layers, write_merged


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
        dtype = compute_dtype(job.base_model, job.device)
        trained = load_model(job.base_model, job.device, dtype)
        sampler = load_model(job.base_model, job.device, dtype).eval()
        sampler.requires_grad_(False)
        attend_grouped_on_cpu(trained)
        attend_grouped_on_cpu(sampler)
        model = get_peft_model(trained, lora_config(job.config.training.lora))
        _share_what_is_not_adapted(model, sampler)
        context = int(getattr(trained.config, "max_position_embeddings", 1 << 20))
        engine = BatchingEngine(sampler, tokenizer, context_length=context, version=job.from_step)
        return cls(model, tokenizer, engine, sampler)

    @property
    def dtype(self) -> torch.dtype:
        """What both models compute in; the adapter is kept in float32."""
        return self.sampler.dtype

    def publish(self, version: int) -> None:
        """Merge the adapter into the sampling weights: from now on the engine samples from `version`."""
        with self.engine.publishing(version):
            write_merged(self.model, self.sampler)

    def close(self) -> None:
        """Sample no more."""
        self.engine.close()


def compute_dtype(folder: Path, device: str) -> torch.dtype:
    """bfloat16 on a GPU; on a CPU too, where it multiplies bfloat16 itself and the model is stored so: else float32.

    On such a CPU it takes half the time of float32; on others it takes longer.
    """
    if device != "cpu":
        return torch.bfloat16
    stored = AutoConfig.from_pretrained(folder, local_files_only=True).dtype
    return torch.bfloat16 if stored == torch.bfloat16 and _multiplies_bfloat16() else torch.float32


def _multiplies_bfloat16() -> bool:
    features: Any = torch.cpu
    return features._is_avx512_bf16_supported() or features._is_amx_tile_supported()


def load_model(folder: Path, device: str, dtype: torch.dtype) -> Any:
    """A causal language model."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
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


def _share_what_is_not_adapted(model: PeftModel, sampler: Any) -> None:
    """Let both models hold the same tensors where no adapter stands: half the memory for embeddings and norms."""
    adapted = {f"{name}.weight" for name, _ in adapted_layers(model)}
    frozen = {
        name.replace(".base_layer.", "."): parameter
        for name, parameter in model.get_base_model().named_parameters()
        if ".lora_" not in name
    }
    owners: dict[int, str] = {}
    for name, parameter in sampler.named_parameters(remove_duplicate=False):
        other = owners.setdefault(id(parameter), name)
        if other != name and adapted & {name, other}:
            raise ValueError(
                f"target_modules names {name}, whose weights are those of {other} too; leave it out"
            )
    for name, parameter in sampler.named_parameters():
        if name not in adapted and name in frozen:
            parameter.data = frozen[name].data
