"""Completions of one prompt behind one copy of it: the hidden states that predict them, each prompt computed once.

A packed row is a prompt and completions one after the other, without padding between them; a block mask lets each see
the prompt and itself, and each starts at the position behind the prompt, so the result is that of separate rows. The
last token of a completion predicts nothing that is asked for, so it is left out.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

MAX_PACKED_TOKENS = 2048
"""A packed row's attention grows with the square of its length; beyond this, separate rows are cheaper."""
_PROMPT = -1
_PADDING = -2


@dataclass
class _Row:
    """`blocks[i]`: the completion that token i belongs to, `_PROMPT` for the prompt's own tokens."""

    ids: list[int]
    blocks: list[int]
    positions: list[int]


@dataclass
class Packing:
    """`where[b]`: row and column of the token that predicts each token of completion b."""

    rows: list[_Row] = field(default_factory=list[_Row])
    where: list[list[tuple[int, int]]] = field(default_factory=list[list[tuple[int, int]]])

    @property
    def width(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.ids) for row in self.rows)


def plan(
    prompts: torch.Tensor, prompt_mask: torch.Tensor, completions: torch.Tensor, mask: torch.Tensor
) -> Packing | None:
    """Pack `prompts [B, P]` and `completions [B, C]`; None where a sequence alone is too long to be packed."""
    packing = Packing()
    open_rows: dict[tuple[int, ...], int] = {}
    for prompt_ids, completion_ids in zip(
        _present(prompts, prompt_mask), _present(completions, mask), strict=True
    ):
        if len(prompt_ids) + len(completion_ids) > MAX_PACKED_TOKENS:
            return None
        key = tuple(prompt_ids)
        at = open_rows.get(key)
        if at is None or len(packing.rows[at].ids) + len(completion_ids) > MAX_PACKED_TOKENS:
            at = open_rows[key] = len(packing.rows)
            count = len(prompt_ids)
            packing.rows.append(_Row([*prompt_ids], [_PROMPT] * count, [*range(count)]))
        packing.where.append(
            _append(packing.rows[at], at, len(prompt_ids), completion_ids, len(packing.where))
        )
    return packing


def _append(row: _Row, at: int, prompt: int, completion: list[int], block: int) -> list[tuple[int, int]]:
    """Put a completion behind a row; where each of its tokens is predicted."""
    start, inputs = len(row.ids), completion[:-1]
    row.ids += inputs
    row.blocks += [block] * len(inputs)
    row.positions += range(prompt, prompt + len(inputs))
    return [(at, prompt - 1), *((at, start + i) for i in range(len(inputs)))][: len(completion)]


def packed_hidden(backbone: Any, packing: Packing, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The hidden states `[N, H]` that predict the N tokens of all completions, one completion after the other."""
    ids, positions = _tensor(packing, "ids", 0, device), _tensor(packing, "positions", 0, device)
    blocks = _tensor(packing, "blocks", _PADDING, device)
    output = backbone(
        input_ids=ids, attention_mask=_block_mask(blocks, dtype), position_ids=positions, use_cache=False
    )
    places = [row * packing.width + column for tokens in packing.where for row, column in tokens]
    hidden = output.last_hidden_state.flatten(0, 1)
    return hidden.index_select(0, torch.tensor(places, device=device))


def _block_mask(blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Of `blocks [rows, T]` the additive mask `[rows, 1, T, T]`: causal, onto the prompt and the own completion."""
    place = torch.arange(blocks.shape[1], device=blocks.device)
    same = blocks[:, :, None] == blocks[:, None, :]
    # Padding is a block of its own: a row of the softmax without any entry would be undefined.
    sees = (same | (blocks == _PROMPT)[:, None, :]) & (place[:, None] >= place[None, :])
    mask = torch.zeros(sees.shape, dtype=dtype, device=blocks.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]


def _tensor(packing: Packing, part: str, filler: int, device: torch.device) -> torch.Tensor:
    """One part of all rows, right-padded: `[rows, width]`."""
    rows: list[list[int]] = [getattr(row, part) for row in packing.rows]
    return torch.tensor([row + [filler] * (packing.width - len(row)) for row in rows], device=device)


def _present(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """The tokens of each row that the mask has."""
    return [
        [token for token, here in zip(row, present, strict=True) if here]
        for row, present in zip(ids.tolist(), mask.tolist(), strict=True)
    ]
