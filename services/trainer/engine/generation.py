"""Batched sampling on a transformers model, each distinct prompt computed once.

The prompts of a batch are pre-filled without their repetitions and with their common beginning computed once,
left-padded to one length; the cache is then expanded to a row a request and shrinks as rows finish. A row's
randomness comes from its seed alone (inverse transform sampling on one uniform number a token), so a sample does not
depend on its neighbours, up to the arithmetic of the batch.
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

BLOCK = 256
"""Weights summed at once when a token is drawn."""
SHARED_PAYS = 64
"""Tokens to be saved before a pass of its own over the common beginning of the prompts is worth its overhead."""
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
    """Sample every request; results in the order of the requests.

    Raises:
        ArithmeticError: the model's logits are no numbers any more.
    """
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
        # Rows that are through and not dropped yet stay where they are: they must not run past the context.
        under_way = [[int(row.finish is None)] for row in alive]
        mask = torch.cat([mask, mask.new_tensor(under_way)], dim=1)
        positions = mask.sum(dim=1, keepdim=True) - 1
        output = model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
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
    """Cache, logits `[prompts, vocabulary]` behind each prompt, and mask `[prompts, length]`.

    What all prompts begin with (instructions, tools) is computed once.
    """
    shared = _shared_length(prompts)
    length = max(map(len, prompts)) - shared
    device = model.device
    cache = DynamicCache(config=model.config)
    if shared:
        beginning = torch.tensor([prompts[0][:shared]], device=device)
        model(input_ids=beginning, cache=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(prompts))
    ids = torch.zeros(len(prompts), length, dtype=torch.long, device=device)
    mask = torch.ones(len(prompts), shared + length, dtype=torch.long, device=device)
    for i, prompt in enumerate(prompts):
        gap = shared + length - len(prompt)
        ids[i, gap:] = torch.tensor(prompt[shared:], device=device)
        mask[i, shared : shared + gap] = 0
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0)[:, shared:],
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache, output.logits[:, -1].float(), mask


def _shared_length(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with and that pay to be computed apart; one token of each prompt is left."""
    first, last = min(prompts), max(prompts)
    most = min(map(len, prompts)) - 1
    shared = next((i for i in range(most) if first[i] != last[i]), most)
    return shared if (len(prompts) - 1) * shared >= SHARED_PAYS else 0


def _choose(logits: torch.Tensor, rows: Sequence[_Row], tokenizer: Any) -> torch.Tensor:
    """Sample a token a row from `logits [rows, vocabulary]`, note it, and end the rows that are through."""
    temperature = torch.tensor([row.request.temperature for row in rows], device=logits.device)
    greedy = temperature == 0
    best = logits.max(dim=-1)
    # The largest is 0 before it is divided: however low the temperature, nothing overflows.
    scaled = (logits - best.values[:, None]).div_(torch.where(greedy, 1.0, temperature)[:, None])
    scaled = _truncate(scaled, rows)
    weights = scaled.exp()
    uniform = torch.tensor([row.uniform.random() for row in rows], dtype=torch.float64, device=logits.device)
    drawn, total = _draw(weights, uniform)
    if not total.isfinite().all():
        raise ArithmeticError("the policy's logits are no finite numbers; lower the learning rate")
    tokens = torch.where(greedy, best.indices, drawn)
    chosen = scaled.gather(1, tokens[:, None]).squeeze(1).double() - total.log()
    for row, token, logprob in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
        if row.finish is None:
            _note(row, int(token), float(logprob), tokenizer)
    return tokens


def _draw(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `weights [rows, vocabulary]` the index at which their running sum passes `uniform [rows]` of the total.

    The sum runs over blocks first and then within the one block that it stops in: a pass over the vocabulary instead
    of three. Also the total `[rows]`.
    """
    rows, size = weights.shape
    padded = torch.nn.functional.pad(weights, (0, -size % BLOCK)) if size % BLOCK else weights
    blocks = padded.view(rows, -1, BLOCK)
    running = blocks.sum(dim=-1).double().cumsum(dim=-1)
    total = running[:, -1]
    block, before = _passed(running, uniform * total)
    inside = blocks[torch.arange(rows, device=weights.device), block].double().cumsum(dim=-1)
    # The two sums round differently: the remainder must not lie behind the block's own end.
    remainder = torch.minimum(uniform * total - before, inside[:, -1] * (1 - 1e-12))
    place, _ = _passed(inside, remainder)
    return block * BLOCK + place, total


def _passed(running: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first place of `running [rows, N]` above `target [rows]`, and the sum before it."""
    place = torch.searchsorted(running, target[:, None], right=True).clamp_(max=running.shape[1] - 1)
    before = running.gather(1, (place - 1).clamp(min=0)).masked_fill(place == 0, 0.0)
    return place.squeeze(1), before.squeeze(1)


def _note(row: _Row, token: int, logprob: float, tokenizer: Any) -> None:
    row.token_ids.append(token)
    row.logprobs.append(logprob)
    request = row.request
    if token in request.stop_token_ids or (request.stop and _stops(row, tokenizer)):
        row.finish = "stop"
    elif len(row.token_ids) >= request.max_tokens:
        row.finish = "length"


def _stops(row: _Row, tokenizer: Any) -> bool:
    """Whether the text has a stop string; its last tokens are enough to see it."""
    # A token is a byte or more, and the first few may be the rest of a character or lose their space.
    longest = max(len(stop.encode()) for stop in row.request.stop)
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
    shares = ordered.softmax(dim=-1)
    before = shares.cumsum(dim=-1) - shares
    share = torch.tensor(top_p, device=scaled.device)[:, None]
    ordered = ordered.masked_fill((before >= share) & (share < 1), -torch.inf)
    return torch.full_like(scaled, -torch.inf).scatter(1, order, ordered)
