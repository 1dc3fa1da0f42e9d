"""Merging, exporting and converting: folders that transformers loads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.artifacts.convert import convert_gguf, packaged_gguf
from services.trainer.artifacts.exporting import ModelCard, NotAModel, export_folder
from services.trainer.artifacts.merging import merge_adapter
from tests.support.tiny_model import make_tiny_model

IDS = torch.tensor([[10, 20, 30, 40]])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "base")


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    torch.manual_seed(1)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, target_modules="all-linear")
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        torch.save(model(IDS).logits, tmp_path / "logits.pt")
    return tmp_path / "adapter"


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder)(IDS).logits.float()


def test_a_merged_model_answers_as_base_and_adapter_do(base: Path, adapter: Path, tmp_path: Path) -> None:
    merged = merge_adapter(base, adapter, tmp_path / "merged")
    expected = torch.load(tmp_path / "logits.pt")
    assert torch.allclose(logits(merged), expected, atol=1e-4)
    assert not torch.allclose(logits(base), expected, atol=1e-3)
    assert AutoTokenizer.from_pretrained(merged).chat_template


def test_an_adapter_of_another_model_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    wrong = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=8, target_modules="all-linear")
    )
    wrong.save_pretrained(tmp_path / "wrong")
    (tmp_path / "wrong" / "adapter_model.safetensors").rename(adapter / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="does not fit"):
        merge_adapter(base, adapter, tmp_path / "merged")


def test_an_export_is_the_model_with_a_card_that_the_hub_reads(base: Path, tmp_path: Path) -> None:
    recipe = {"config": {"training": {"lr": 1e-4}, "sampling": {"temperature": 1.0}}}
    card = ModelCard("adder", "tiny", "apache-2.0", recipe, {"eval/validation/reward": 0.95})
    folder = export_folder(base, tmp_path / "export", card)
    assert torch.equal(logits(folder), logits(base))
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "apache-2.0"
    assert yaml.safe_load(front)["base_model"] == "tiny"
    assert "| eval/validation/reward | 0.95 |" in text
    assert "| lr | 0.0001 |" in text


def test_a_folder_without_weights_is_not_exported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAModel):
        export_folder(tmp_path / "empty", tmp_path / "export", ModelCard("m", "b", "mit"))


def test_the_packaged_model_is_converted_once_and_loads(tmp_path: Path) -> None:
    folder = convert_gguf(packaged_gguf(), tmp_path / "smollm2")
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert convert_gguf(packaged_gguf(), tmp_path / "smollm2") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) > 130_000_000
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert asked.endswith("<|im_start|>assistant\n")
