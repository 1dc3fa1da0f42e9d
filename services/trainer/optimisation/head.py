"""Log-probabilities and entropies of chosen tokens, without keeping logits for the backward pass.

A token's log-probability has one number of gradient, so its derivative by the hidden state is one vector, computed in
the forward pass while the token's probabilities are at hand: two products with the vocabulary, none of them twice, and
`[N, hidden]` numbers kept instead of `[N, vocabulary]`. The head itself gets no gradient.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

import torch

CHUNK = 256
"""Tokens whose logits are in memory at once."""

_SCALED = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)


def plain_head(model: Any) -> torch.Tensor | None:
    """The head's weight `[vocabulary, hidden]` where logits are hidden states times it and it is frozen; else None."""
    head: Any = model.get_output_embeddings()
    config = model.config.get_text_config()
    if (
        type(head) is not torch.nn.Linear
        or "bias" in dict(head.named_parameters())
        or head.weight.requires_grad
    ):
        return None
    if any(getattr(config, name, None) not in (None, 1.0) for name in _SCALED):
        return None
    return head.weight


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `hidden [N, H]` and `targets [N]`: log-probabilities `[N]` with gradient, entropies `[N]` without; nats."""
    result: Any = _TokenLogprobs.apply(hidden, weight, targets, temperature)
    return result


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - the base takes anything
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        entropies = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden, dtype=torch.float32) if ctx.needs_input_grad[0] else None
        for start in range(0, len(hidden), CHUNK):
            part = slice(start, start + CHUNK)
            logits = (hidden[part] @ weight.t()).float().div_(temperature)
            logs = logits.sub_(logits.logsumexp(dim=-1, keepdim=True))
            logprobs[part] = logs.gather(1, targets[part, None]).squeeze(1)
            shares = logs.exp()
            entropies[part] = -torch.linalg.vecdot(shares, logs)
            if slopes is not None:
                expected = (shares.to(weight.dtype) @ weight).float()
                slopes[part] = (weight[targets[part]].float() - expected).div_(temperature)
        if slopes is not None:
            ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(entropies)
        ctx.type = hidden.dtype
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (slopes,) = ctx.saved_tensors
        return (grads[0][:, None] * slopes).to(ctx.type), None, None, None
