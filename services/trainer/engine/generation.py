"""Batched sampling on a transformers model, each distinct prompt computed once.

The prompts of a batch are pre-filled without their repetitions, left-padded to one length; the cache is then expanded
to a row a request and shrinks as rows finish. A row's randomness comes from its seed alone (inverse transform sampling
on one uniform number a token), so a sample does not depend on its neighbours, up to the arithmetic of the batch.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers import DynamicCache

from services.trainer.engine.sampling import SampleRequest, SampleResult

COMPACT_SHARE = 0.125
"""Rows are dropped from the batch once so large a share of it has finished: each drop copies the cache."""


@dataclass
class _Row:
    """One request under way."""

    place: int
    request: SampleRequest
    uniform: random.Random
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish: Literal["stop", "length"] | None = None


@torch.no_grad()
def generate(
    model: Any, tokenizer: Any, requests: Sequence[SampleRequest], version: int
) -> list[SampleResult]:
    """Sample every request; results in the order of the requests."""
    rows = [_Row(i, request, random.Random(request.seed)) for i, request in enumerate(requests)]
    prompts = sorted({tuple(row.request.prompt_ids) for row in rows})
    index = {prompt: i for i, prompt in enumerate(prompts)}
    cache, logits, mask = _prefill(model, prompts)
    which = torch.tensor([index[tuple(row.request.prompt_ids)] for row in rows], device=logits.device)
    cache.batch_select_indices(which)
    logits, mask = logits[which], mask[which]
    alive = rows
    while True:
        tokens = _choose(logits, alive, tokenizer)
        kept = [i for i, row in enumerate(alive) if row.finish is None]
        if not kept:
            break
        if len(alive) - len(kept) >= COMPACT_SHARE * len(alive):
            chosen = torch.tensor(kept, device=logits.device)
            cache.batch_select_indices(chosen)
            mask, tokens, alive = mask[chosen], tokens[chosen], [alive[i] for i in kept]
        mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
        positions = mask.sum(dim=1, keepdim=True) - 1
        output = model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1].float()
    return [
        SampleResult(
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            finish_reason=row.finish or "length",
            version=version,
        )
        for row in rows
    ]


def _prefill(
    model: Any, prompts: Sequence[tuple[int, ...]]
) -> tuple[DynamicCache, torch.Tensor, torch.Tensor]:
    """Cache, logits `[prompts, vocabulary]` behind each prompt, and mask `[prompts, length]`."""
    length = max(map(len, prompts))
    device = model.device
    ids = torch.zeros(len(prompts), length, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, length - len(prompt) :] = torch.tensor(prompt, device=device)
        mask[i, length - len(prompt) :] = 1
    cache = DynamicCache()
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache, output.logits[:, -1].float(), mask


def _choose(logits: torch.Tensor, rows: Sequence[_Row], tokenizer: Any) -> torch.Tensor:
    """Sample a token a row from `logits [rows, vocabulary]`, note it, and end the rows that are through."""
    temperature = torch.tensor([row.request.temperature for row in rows], device=logits.device)
    greedy = temperature == 0
    scaled = logits / torch.where(greedy, 1.0, temperature)[:, None]
    scaled = _truncate(scaled, rows)
    logprobs = scaled.log_softmax(dim=-1)
    uniform = torch.tensor([row.uniform.random() for row in rows], dtype=torch.float64, device=logits.device)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    drawn = torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True).squeeze(1)
    drawn = drawn.clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(dim=-1), drawn)
    chosen = logprobs.gather(1, tokens[:, None]).squeeze(1).tolist()
    for row, token, logprob in zip(rows, tokens.tolist(), chosen, strict=True):
        if row.finish is None:
            _note(row, int(token), float(logprob), tokenizer)
    return tokens


def _note(row: _Row, token: int, logprob: float, tokenizer: Any) -> None:
    row.token_ids.append(token)
    row.logprobs.append(logprob)
    request = row.request
    if token in request.stop_token_ids or (request.stop and _stops(row, tokenizer)):
        row.finish = "stop"
    elif len(row.token_ids) >= request.max_tokens:
        row.finish = "length"


def _stops(row: _Row, tokenizer: Any) -> bool:
    """Whether the text ends in a stop string; the last tokens are enough to see it."""
    longest = max(map(len, row.request.stop))
    tail = tokenizer.decode(row.token_ids[-(longest + 8) :], skip_special_tokens=False)
    return any(stop in tail for stop in row.request.stop)


def _truncate(scaled: torch.Tensor, rows: Sequence[_Row]) -> torch.Tensor:
    """Top-k, then top-p (Holtzman et al. 2020, arXiv 1904.09751), where a row asks for them."""
    top_k = [row.request.top_k for row in rows]
    top_p = [row.request.top_p for row in rows]
    if not any(top_k) and all(p >= 1 for p in top_p):
        return scaled
    ordered, order = scaled.sort(dim=-1, descending=True)
    rank = torch.arange(scaled.shape[-1], device=scaled.device)
    limit = torch.tensor([k or scaled.shape[-1] for k in top_k], device=scaled.device)
    cut = rank[None, :] >= limit[:, None]
    ordered = ordered.masked_fill(cut, -torch.inf)
    before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
    share = torch.tensor(top_p, device=scaled.device)[:, None]
    ordered = ordered.masked_fill((before >= share) & (share < 1), -torch.inf)
    return torch.full_like(scaled, -torch.inf).scatter(1, order, ordered)
