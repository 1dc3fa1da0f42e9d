"""The policy engine on a tiny model: what it samples, and that neighbours and order do not matter."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.trainer.engine.batching import BatchingEngine
from services.trainer.engine.generation import generate
from services.trainer.engine.sampling import Overloaded, SampleRequest, SampleResult
from services.trainer.engine.server import engine_app, engine_server
from tests.support.tiny_model import make_tiny_model

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def asked(tokenizer: Any, text: str, seed: int = 0, **changes: Any) -> SampleRequest:
    prompt = tokenizer(text)["input_ids"]
    return SampleRequest(**{"prompt_ids": prompt, "max_tokens": 12, "seed": seed, **changes})


def test_a_greedy_sample_is_what_transformers_generates(model: Any, tokenizer: Any) -> None:
    requests = [
        asked(tokenizer, text, temperature=0) for text in ("2 + 2 is", "the longer prompt of the two says")
    ]
    for request, result in zip(requests, generate(model, tokenizer, requests, 0), strict=True):
        expected = model.generate(
            torch.tensor([request.prompt_ids]), max_new_tokens=12, do_sample=False, eos_token_id=-1
        )[0, len(request.prompt_ids) :]
        assert result.token_ids == expected.tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_log_probabilities_are_those_of_a_full_forward_pass(
    model: Any, tokenizer: Any, temperature: float
) -> None:
    requests = [asked(tokenizer, "a prompt", seed, temperature=temperature) for seed in range(4)]
    for request, result in zip(requests, generate(model, tokenizer, requests, 0), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *result.token_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1] / temperature
        expected = logits.log_softmax(-1).gather(1, torch.tensor(result.token_ids)[:, None]).squeeze(1)
        assert torch.allclose(torch.tensor(result.logprobs), expected, atol=TOLERANCE)


def test_a_sample_depends_on_its_seed_alone(model: Any, tokenizer: Any) -> None:
    requests = [asked(tokenizer, text, seed) for text in ("one", "a second prompt") for seed in range(5)]
    alone = [generate(model, tokenizer, [request], 0)[0].token_ids for request in requests]
    together = [result.token_ids for result in generate(model, tokenizer, requests, 0)]
    reversed_ = [result.token_ids for result in generate(model, tokenizer, requests[::-1], 0)][::-1]
    assert together == alone == reversed_
    assert len({tuple(tokens) for tokens in alone}) > 5, "seeds make a difference"


def test_top_k_and_top_p_never_sample_what_they_cut(model: Any, tokenizer: Any) -> None:
    prompt = asked(tokenizer, "cut")
    with torch.no_grad():
        order = model(torch.tensor([prompt.prompt_ids])).logits[0, -1].argsort(descending=True).tolist()
    cut = [asked(tokenizer, "cut", seed, max_tokens=1, top_k=3) for seed in range(64)]
    tokens = {result.token_ids[0] for result in generate(model, tokenizer, cut, 0)}
    assert tokens <= set(order[:3])
    assert len(tokens) > 1
    narrow = [asked(tokenizer, "cut", seed, max_tokens=1, top_p=1e-6) for seed in range(16)]
    results = generate(model, tokenizer, narrow, 0)
    assert {result.token_ids[0] for result in results} == {order[0]}
    assert all(result.logprobs[0] == pytest.approx(0.0, abs=TOLERANCE) for result in results)


def test_a_stop_token_ends_one_row_and_leaves_the_others(model: Any, tokenizer: Any) -> None:
    plain = [asked(tokenizer, "stop", seed) for seed in range(6)]
    before = generate(model, tokenizer, plain, 0)
    stop = before[0].token_ids[3]
    stopping = [request.model_copy(update={"stop_token_ids": [stop]}) for request in plain]
    for result, whole in zip(generate(model, tokenizer, stopping, 0), before, strict=True):
        if stop in whole.token_ids:
            assert result.token_ids == whole.token_ids[: whole.token_ids.index(stop) + 1]
            assert result.finish_reason == "stop"
        else:
            assert (result.token_ids, result.finish_reason) == (whole.token_ids, "length")


def test_a_stop_text_ends_the_answer(model: Any, tokenizer: Any) -> None:
    whole = generate(model, tokenizer, [asked(tokenizer, "text", 3)], 0)[0]
    texts = [tokenizer.decode(whole.token_ids[: i + 1]) for i in range(len(whole.token_ids))]
    stop = next((t[-1] for t in texts if t and t[-1].isascii() and t[-1].isprintable()), None)
    if stop is None:
        stop = texts[2][-1]
    result = generate(model, tokenizer, [asked(tokenizer, "text", 3, stop=[stop])], 0)[0]
    assert result.finish_reason == "stop"
    assert stop in tokenizer.decode(result.token_ids)
    assert stop not in tokenizer.decode(result.token_ids[:-1])


@pytest.fixture
def engine(model: Any, tokenizer: Any):
    running = BatchingEngine(model, tokenizer, context_length=256, version=3)
    yield running
    running.close()


def test_requests_from_many_threads_are_answered_with_the_version(
    engine: BatchingEngine, tokenizer: Any
) -> None:
    requests = [asked(tokenizer, f"row {i % 4}", i) for i in range(32)]
    futures: list[Future[SampleResult] | None] = [None] * len(requests)

    def submit(i: int) -> None:
        futures[i] = engine.submit(requests[i])

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = [future.result(timeout=60) for future in futures if future is not None]
    assert len(results) == 32
    assert {result.version for result in results} == {3}
    with engine.publishing(4):
        pass
    assert engine.submit(requests[0]).result(timeout=60).version == 4


def test_what_does_not_fit_the_context_is_refused(engine: BatchingEngine, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="context of 256"):
        engine.submit(asked(tokenizer, "x", max_tokens=300))


def test_a_closed_engine_refuses(model: Any, tokenizer: Any) -> None:
    engine = BatchingEngine(model, tokenizer, context_length=256)
    engine.close()
    with pytest.raises(Overloaded):
        engine.submit(asked(tokenizer, "late"))


async def test_over_http_the_token_opens_and_errors_are_told(engine: BatchingEngine, tokenizer: Any) -> None:
    transport = httpx.ASGITransport(engine_app(engine, "right"))
    body = asked(tokenizer, "http", 1).model_dump()
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        assert (await client.post("/v1/sample", json=body)).status_code == 401
        client.headers["Authorization"] = "Bearer right"
        answer = await client.post("/v1/sample", json=body)
        assert answer.status_code == 200
        assert SampleResult.model_validate(answer.json()).version == 3
        assert (await client.post("/v1/sample", json=body | {"max_tokens": 999})).status_code == 422
        assert (await client.post("/v1/sample", json=body | {"prompt_ids": []})).status_code == 422
        assert (await client.get("/v1/version")).json() == {"version": 3}
        engine.close()
        late = await client.post("/v1/sample", json=body)
        assert (late.status_code, "retry-after" in late.headers) == (503, True)


def test_the_server_listens_until_its_block_ends(engine: BatchingEngine, tokenizer: Any) -> None:
    with engine_server(engine, "t", "127.0.0.1", "127.0.0.1") as address:
        headers = {"Authorization": "Bearer t"}
        body = asked(tokenizer, "served", 1).model_dump()
        assert httpx.post(f"{address}/v1/sample", json=body, headers=headers, timeout=60).status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{address}/health", timeout=2)
