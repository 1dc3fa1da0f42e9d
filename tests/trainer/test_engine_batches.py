"""What the engine computes together: prompts and their beginnings once, a draw in blocks, batches, waiting requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.engine import batching, generation
from services.trainer.engine.attention import attend_grouped_on_cpu
from services.trainer.engine.batching import BatchingEngine
from services.trainer.engine.generation import generate
from services.trainer.engine.sampling import Overloaded, SampleRequest
from tests.support.tiny_model import make_tiny_model

DEADLINE_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture
def engine(model: Any, tokenizer: Any) -> Iterator[BatchingEngine]:
    running = BatchingEngine(model, tokenizer, context_length=512)
    yield running
    running.close()


def asked(prompt_ids: list[int], seed: int = 0, **changes: Any) -> SampleRequest:
    return SampleRequest.model_validate(
        {"prompt_ids": prompt_ids, "max_tokens": 8, "seed": seed, "rollout_id": f"r{seed}"} | changes
    )


class Counting:
    """A model that counts the prompt tokens and passes it is asked for."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device, self.config = model.device, model.config
        self.sizes: list[tuple[int, int]] = []

    def __call__(self, **arguments: Any) -> Any:
        self.sizes.append(tuple(arguments["input_ids"].shape))
        return self._model(**arguments)


def test_a_groups_prompt_is_computed_once(model: Any, tokenizer: Any) -> None:
    counting = Counting(model)
    generate(counting, tokenizer, [asked([5, 6, 7, 8], seed, max_tokens=2) for seed in range(6)], 0)
    assert counting.sizes == [(1, 4), (6, 1)]


def test_what_prompts_begin_with_is_computed_once_and_changes_nothing(model: Any, tokenizer: Any) -> None:
    beginning = [20 + i % 50 for i in range(80)]
    prompts = [[*beginning, 3, 4], [*beginning, 3, 9, 9, 9], beginning]
    requests = [asked(prompt, seed) for seed, prompt in enumerate(prompts)]
    counting = Counting(model)
    together = generate(counting, tokenizer, requests, 0)
    assert counting.sizes[:2] == [(1, 79), (3, 5)], "one token of the shortest prompt is left to predict from"
    for request, result in zip(requests, together, strict=True):
        alone = generate(model, tokenizer, [request], 0)[0]
        assert result.token_ids == alone.token_ids
        assert result.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_finished_rows_leave_the_batch(model: Any, tokenizer: Any) -> None:
    counting = Counting(model)
    requests = [asked([7, 8], seed, max_tokens=2 if seed < 6 else 6) for seed in range(8)]
    results = generate(counting, tokenizer, requests, 0)
    assert [len(result.token_ids) for result in results] == [2] * 6 + [6] * 2
    assert [rows for rows, _ in counting.sizes] == [1, 8, 2, 2, 2, 2]


@pytest.mark.parametrize("size", [3, 256, 259, 1000])
def test_a_draw_in_blocks_is_the_draw_over_the_whole(size: int) -> None:
    torch.manual_seed(size)
    weights = torch.rand(64, size)
    weights[:, ::3] = 0.0
    uniform = torch.rand(64, dtype=torch.float64)
    drawn, total = generation._draw(weights, uniform)
    running = weights.double().cumsum(dim=-1)
    expected = torch.searchsorted(running, (uniform * running[:, -1])[:, None], right=True).squeeze(1)
    assert torch.equal(drawn, expected)
    assert torch.allclose(total, running[:, -1])


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
def test_the_ends_of_the_draw_never_hit_what_has_no_weight(uniform: float) -> None:
    weights = torch.zeros(1, 700)
    weights[0, 300], weights[0, 400] = 0.25, 0.5
    drawn, _ = generation._draw(weights, torch.tensor([uniform], dtype=torch.float64))
    assert int(drawn) == (300 if uniform == 0.0 else 400)


def test_tokens_are_drawn_as_often_as_they_are_likely(model: Any, tokenizer: Any) -> None:
    requests = [asked([9, 9, 9], seed, max_tokens=1) for seed in range(2000)]
    results = generate(model, tokenizer, requests, 0)
    with torch.no_grad():
        expected = model(torch.tensor([[9, 9, 9]])).logits[0, -1].softmax(-1) * len(requests)
    counts = torch.zeros_like(expected)
    for result in results:
        counts[result.token_ids[0]] += 1
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    # Of 258 degrees of freedom: mean 258, standard deviation 22.7.
    assert chi_squared < 258 + 6 * 22.7


def test_grouped_attention_samples_what_the_library_does(folder: Path, tokenizer: Any) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    grouped = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    attend_grouped_on_cpu(grouped)
    assert grouped.config._attn_implementation != plain.config._attn_implementation
    requests = [asked([30 + seed % 3] * (3 + seed % 3), seed) for seed in range(9)]
    for ours, theirs in zip(
        generate(grouped, tokenizer, requests, 0), generate(plain, tokenizer, requests, 0), strict=True
    ):
        assert ours.token_ids == theirs.token_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    ids = torch.randint(0, 200, (2, 40))
    left = torch.ones_like(ids)
    left[1, :7] = 0
    with torch.no_grad():
        ours, theirs = (m(input_ids=ids, attention_mask=left).logits for m in (grouped, plain))
    assert torch.allclose(ours[0], theirs[0], atol=1e-4)
    assert torch.allclose(ours[1, 7:], theirs[1, 7:], atol=1e-4)


def test_requests_wait_while_the_weights_change(engine: BatchingEngine) -> None:
    with engine.publishing(7):
        waiting = [engine.submit(asked([1, 2, 3], seed)) for seed in range(3)]
        assert not any(future.done() for future in waiting)
    assert {future.result(DEADLINE_S).version for future in waiting} == {7}


def test_who_gave_up_waiting_is_not_sampled_for(engine: BatchingEngine) -> None:
    with engine.publishing(1):
        # A batch that the engine has gathered waits for the weights; what comes behind it can still be given up.
        first = engine.submit(asked([1, 2, 3]))
        while not first.running():
            assert not first.done()
        given_up = engine.submit(asked([1, 2, 3], 1, max_tokens=400))
        assert given_up.cancel()
    last = engine.submit(asked([4, 5], 2))
    assert len(last.result(DEADLINE_S).token_ids) == 8
    assert len(first.result(DEADLINE_S).token_ids) == 8
    assert engine.sampled_tokens == 16


def test_too_many_waiting_requests_are_refused(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MAX_WAITING", 2)
    with engine.publishing(1):
        first = engine.submit(asked([1, 2, 3]))
        while not first.running():
            assert not first.done()
        held = [engine.submit(asked([1, 2, 3], seed)) for seed in (1, 2)]
        with pytest.raises(Overloaded):
            engine.submit(asked([1, 2, 3], 3))
    assert all(len(future.result(DEADLINE_S).token_ids) == 8 for future in held)


def test_the_order_of_arrival_changes_nothing(engine: BatchingEngine) -> None:
    requests = [asked([40 + seed % 4] * (4 + seed % 2), seed) for seed in range(24)]

    def answers(order: list[SampleRequest]) -> dict[str, tuple[list[int], list[float]]]:
        with engine.publishing(engine.version):
            futures = {request.rollout_id: engine.submit(request) for request in order}
        results = {name: future.result(DEADLINE_S) for name, future in futures.items()}
        return {name: (result.token_ids, result.logprobs) for name, result in results.items()}

    # The first request is gathered alone while the others still arrive: send one ahead in both orders.
    assert answers([requests[0], *requests[1:]]) == answers([requests[0], *requests[:0:-1]])


def test_a_token_that_the_model_does_not_have_harms_no_neighbour(engine: BatchingEngine) -> None:
    good = engine.submit(asked([1, 2]))
    for unknown in (10**6, -1):
        with pytest.raises(ValueError, match="tokens"):
            engine.submit(asked([1, unknown]))
    assert len(good.result(DEADLINE_S).token_ids) == 8


def test_closing_refuses_who_waits(model: Any, tokenizer: Any) -> None:
    engine = BatchingEngine(model, tokenizer, context_length=512)
    with engine.publishing(1):
        first = engine.submit(asked([1, 2, 3]))
        while not first.running():
            assert not first.done()
        waiting = engine.submit(asked([1, 2, 3], 1))
        closing = threading.Thread(target=engine.close)
        closing.start()
    closing.join(DEADLINE_S)
    assert len(first.result(DEADLINE_S).token_ids) == 8
    with pytest.raises(Overloaded):
        waiting.result(DEADLINE_S)
