"""The update's short cuts give what the long way gives: packed prompts, the head, merged weights in bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from services.trainer.optimisation import packing
from services.trainer.optimisation.head import plain_head, token_logprobs
from services.trainer.optimisation.packing import packed_hidden, plan
from services.trainer.optimisation.rounding import UnbiasedRounding
from tests.support.tiny_model import make_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(folder: Path) -> Any:
    """A model with an adapter that does something."""
    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


PROMPTS = [[1, 2, 3], [1, 2, 3], [9, 8, 7, 6, 5], [1, 2, 3], [9, 8, 7, 6, 5], [4]]
COMPLETIONS = [[10, 11, 12, 13], [20], [30, 31, 32], [40, 41], [50, 51, 52, 53], [60, 61]]


def padded(rows: list[list[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids, mask = (
        torch.zeros(len(rows), width, dtype=torch.long),
        torch.zeros(len(rows), width, dtype=torch.long),
    )
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def separately(model: Any, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of all completion tokens, each sequence in a forward pass of its own."""
    found: list[torch.Tensor] = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1] / temperature
        found.append(logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None]).squeeze(1))
    return torch.cat(found)


def packed(model: Any, temperature: float = 1.0) -> torch.Tensor:
    planned = plan(*padded(PROMPTS, left=True), *padded(COMPLETIONS, left=False))
    assert planned is not None
    base = model.get_base_model()
    hidden = packed_hidden(base.base_model, planned, torch.device("cpu"), torch.float32)
    head = plain_head(base)
    assert head is not None
    targets = torch.tensor([token for completion in COMPLETIONS for token in completion])
    return token_logprobs(hidden, head, targets, temperature)[0]


def gradients(model: Any) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("most", [2048, 9])
def test_packed_completions_have_the_values_and_gradients_of_separate_ones(
    model: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(packing, "MAX_PACKED_TOKENS", most)
    weights = torch.linspace(-1, 1, sum(map(len, COMPLETIONS)))
    expected = separately(model, 0.7)
    (expected * weights).sum().backward()
    expected_gradients = gradients(model)
    found = packed(model, 0.7)
    (found * weights).sum().backward()
    assert torch.allclose(found, expected, atol=1e-5)
    for one, other in zip(gradients(model), expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_each_prompt_stands_in_one_row_and_the_last_token_in_none() -> None:
    planned = plan(*padded(PROMPTS, left=True), *padded(COMPLETIONS, left=False))
    assert planned is not None
    assert [row.ids for row in planned.rows] == [
        [1, 2, 3, 10, 11, 12, 40],
        [9, 8, 7, 6, 5, 30, 31, 50, 51, 52],
        [4, 60],
    ]
    assert planned.rows[0].positions == [0, 1, 2, 3, 4, 5, 3]


def test_a_sequence_that_is_too_long_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_PACKED_TOKENS", 8)
    assert plan(*padded(PROMPTS, left=True), *padded(COMPLETIONS, left=False)) is None


def test_the_head_gives_what_autograd_gives_in_chunks_too() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(600, 16, requires_grad=True)
    weight, targets = torch.randn(90, 16), torch.randint(0, 90, (600,))
    logs = (hidden @ weight.t() / 1.3).log_softmax(-1)
    slopes = torch.randn(600)
    (logs.gather(1, targets[:, None]).squeeze(1) * slopes).sum().backward()
    expected, hidden.grad = hidden.grad, None
    logprobs, entropies = token_logprobs(hidden, weight, targets, 1.3)
    (logprobs * slopes).sum().backward()
    assert expected is not None and hidden.grad is not None
    assert torch.allclose(hidden.grad, expected, atol=1e-5)
    assert torch.allclose(entropies, -(logs.exp() * logs).sum(-1), atol=1e-5)
    assert not entropies.requires_grad


def test_a_head_that_is_more_than_a_product_is_left_to_the_library(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert plain_head(model) is None, "it is trained"
    model.requires_grad_(False)
    assert plain_head(model) is not None
    model.config.final_logit_softcapping = 30.0
    assert plain_head(model) is None


def test_small_changes_survive_the_merge_into_bfloat16_on_average() -> None:
    base = torch.full((1000, 1000), 0.05).bfloat16()
    change = 2e-5
    assert torch.equal((base.float() + change).bfloat16(), base), "rounded to the nearest it would be lost"
    target = torch.empty_like(base)
    UnbiasedRounding(torch.device("cpu")).into(target, base.float() + change, 4)
    mean = (target.float() - base.float()).mean()
    assert float(mean) == pytest.approx(change, rel=0.02)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_bfloat16_has_stays_and_the_rest_goes_to_a_neighbour(sign: int) -> None:
    rounding = UnbiasedRounding(torch.device("cpu"))
    exact = torch.randn(5000).bfloat16()
    target = torch.empty_like(exact)
    rounding.into(target, exact.float(), 1)
    assert torch.equal(target, exact)
    between = torch.rand(5000) * sign + sign
    rounding.into(target, between.clone(), 1)
    ulp = 2.0**-7
    assert float((target.float() - between).abs().max()) < ulp
    again = torch.empty_like(target)
    rounding.into(again, between.clone(), 1)
    assert torch.equal(target, again)
