"""Log-probabilities of many completions behind few prompts, each prompt computed once.

The completions of one prompt stand behind it in one row; a block mask lets each see the prompt and itself, and each
starts at the position behind the prompt, so the result is that of separate rows. Packing pays while the prompt's
tokens that are saved outweigh the attention between completions that the mask throws away.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

MAX_PACKED_TOKENS = 2048
"""A packed row's attention grows with the square of its length; beyond this, separate rows are cheaper."""


@dataclass(frozen=True)
class Packing:
    """`slots[r]`: indices of the completions behind prompt row `rows[r]`; `width`: completions a packed row."""

    rows: list[int]
    slots: list[list[int]]

    @property
    def width(self) -> int:
        """Completions of the fullest row."""
        return max(map(len, self.slots))


def plan(prompts: torch.Tensor, prompt_mask: torch.Tensor, completion_length: int) -> Packing | None:
    """Which of `prompts [B, P]` are the same; None where packing does not pay."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for i, key in enumerate(torch.where(prompt_mask.bool(), prompts, -1).tolist()):
        by_prompt.setdefault(tuple(key), []).append(i)
    packing = Packing([slots[0] for slots in by_prompt.values()], list(by_prompt.values()))
    if packing.width < 2 or prompts.shape[1] + packing.width * completion_length > MAX_PACKED_TOKENS:
        return None
    return packing


def packed_logits(
    model: Any,
    packing: Packing,
    prompts: torch.Tensor,
    prompt_mask: torch.Tensor,
    completions: torch.Tensor,
    completion_mask: torch.Tensor,
) -> torch.Tensor:
    """Logits that predict each completion token: `[B, C, vocabulary]` for `completions [B, C]`."""
    count, length = completions.shape
    rows, width, prompt_length = len(packing.rows), packing.width, prompts.shape[1]
    ids = prompts.new_zeros(rows, prompt_length + width * length)
    present = prompts.new_zeros(ids.shape)
    for r, (row, slots) in enumerate(zip(packing.rows, packing.slots, strict=True)):
        ids[r, :prompt_length], present[r, :prompt_length] = prompts[row], prompt_mask[row]
        packed = slice(prompt_length, prompt_length + len(slots) * length)
        ids[r, packed], present[r, packed] = completions[slots].flatten(), completion_mask[slots].flatten()
    ends = prompt_mask[packing.rows].sum(dim=1, keepdim=True)
    within = torch.arange(length, device=ids.device).repeat(width)
    positions = torch.cat(
        [(prompt_mask[packing.rows].cumsum(dim=1) - 1).clamp(min=0), ends + within[None, :]], dim=1
    )
    keep = torch.arange(prompt_length - 1, ids.shape[1], device=ids.device)
    output = model(
        input_ids=ids,
        attention_mask=_block_mask(present, prompt_length, length, _dtype(model)),
        position_ids=positions,
        logits_to_keep=keep,
        use_cache=False,
    )
    where = torch.arange(width, device=ids.device)[:, None] * length + torch.arange(length, device=ids.device)
    where[:, 0] = 0
    picked = output.logits[:, where]
    flat = [(r, slot) for r, slots in enumerate(packing.slots) for slot in range(len(slots))]
    order = [i for slots in packing.slots for i in slots]
    inverse = torch.tensor(sorted(range(count), key=order.__getitem__), device=ids.device)
    chosen = picked[[r for r, _ in flat], [slot for _, slot in flat]]
    return chosen[inverse]


def _block_mask(present: torch.Tensor, prompt_length: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """`[rows, 1, T, T]` additive: causal, within the prompt or the own completion, onto present tokens alone."""
    total = present.shape[1]
    place = torch.arange(total, device=present.device)
    block = torch.where(place < prompt_length, -1, (place - prompt_length) // length)
    sees = (block[None, :] == -1) | (block[:, None] == block[None, :])
    sees = sees & (place[:, None] >= place[None, :])
    allowed = sees[None] & present.bool()[:, None, :]
    # A padding token sees itself: a row of the softmax without any entry would be undefined.
    allowed = allowed | torch.eye(total, dtype=torch.bool, device=present.device)
    mask = torch.zeros(allowed.shape, dtype=dtype, device=present.device)
    return mask.masked_fill(~allowed, torch.finfo(dtype).min)[:, None]


def _dtype(model: Any) -> torch.dtype:
    return next(p.dtype for p in model.parameters() if p.is_floating_point())
