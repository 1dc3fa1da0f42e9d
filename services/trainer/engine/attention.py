"""Attention for models that share key and value heads among query heads, as the CPU does it best.

The library's kernel repeats the cache for every query head and, in bfloat16, converts it for every new token: most of a
decode's time, and of the attention's backward pass. Here the query heads of one key head are the rows of one product.
The result is the same up to the arithmetic; long sequences, whose scores would fill the memory, go to the library.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "osmosis_grouped"
MOST_SCORES = 512
"""Query tokens of one sequence up to which all scores are kept at once."""
_PLAIN = frozenset({"softcap", "s_aux", "sliding_window", "position_bias"})
"""Arguments of an attention that is more than a scaled softmax."""


def attend_grouped_on_cpu(model: Any) -> None:
    """Let `model` attend by `grouped_attention` where it runs on the CPU and takes other attentions."""
    if model.device.type == "cpu" and getattr(model, "_supports_attention_backend", False):
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """`query [B, heads, Q, D]`, `key` and `value [B, kv heads, T, D]`, mask `[B, 1, Q, T]`: `[B, Q, heads, D]`.

    The mask is boolean (true: seen) or additive. Without one the newest token sees all, a sequence all before.
    """
    batch, heads, length, width = query.shape
    plain = dropout == 0.0 and all(others.get(name) is None for name in _PLAIN) and width == value.shape[-1]
    if length > MOST_SCORES or not plain or (attention_mask is None and length > 1):
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **others
        )
        return output, None
    kv_heads, total = key.shape[1], key.shape[2]
    rows = query.reshape(batch, kv_heads, -1, width)
    scores = torch.matmul(rows, key.transpose(2, 3)).float() * (scaling or width**-0.5)
    scores = scores.view(batch, heads, length, total)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    shares = scores.softmax(dim=-1).to(value.dtype).view(batch, kv_heads, -1, total)
    return torch.matmul(shares, value).view(batch, heads, length, width).transpose(1, 2), None
