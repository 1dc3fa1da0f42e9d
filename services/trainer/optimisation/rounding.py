"""Rounding that loses nothing on average: merged weights in bfloat16 that still carry small changes.

The change of a few steps is smaller than half the distance between two bfloat16 numbers. Rounded to the nearest, it
would vanish from every merged weight and the engine would sample from an old policy. Each weight is therefore rounded
up with the probability that makes its expectation exact (stochastic rounding, Gupta et al. 2015, arXiv 1502.02551).
The draw is fixed: the same adapter gives the same merged weights.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

DRAWS = 1 << 20
_SEED = 20_15
_LOWER_BITS = 16
_STRIDE = 7919
"""Layers begin at different places of the draws; a prime, so that few begin at the same."""


class UnbiasedRounding:
    """Rounds float32 tensors to bfloat16 on one device."""

    def __init__(self, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(_SEED)
        draws = torch.randint(0, 1 << _LOWER_BITS, (DRAWS,), dtype=torch.int32, generator=generator)
        self._draws = draws.to(device)

    def into(self, target: torch.Tensor, exact: torch.Tensor, place: int) -> None:
        """Write `exact`, float32, contiguous and finite, into `target`; `place` chooses the draws.

        A target of another type than bfloat16 takes the values as they are. Numbers that bfloat16 has stay as they are.
        """
        if target.dtype != torch.bfloat16:
            target.copy_(exact)
            return
        bits = exact.view(torch.int32).flatten()
        draws = self._draws.roll(place * _STRIDE)
        for part in bits.split(DRAWS):
            # The lower half of the bits is what bfloat16 drops: adding a draw carries as often as it should.
            part.add_(draws[: part.numel()]).bitwise_and_(-1 << _LOWER_BITS)
        target.copy_(exact)
