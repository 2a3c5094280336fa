"""Rotary positions: a place is written into queries and keys as a rotation."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Turn each pair of numbers of a head by an angle that grows with the position.

    The pair (x_j, x_{j+E/2}) at position t becomes its rotation by the angle t * theta_j,
    theta_j = base^(-2j / E), so that the product of a query at i and a key at j depends on i - j alone
    (Su et al. 2021, RoFormer, section 3.2; halves are paired as in GPT-NeoX, which is the same up to the order
    of a head's numbers). It holds no parameters.

    Args:
        head_dim: E, width of a head; must be even.
        max_length: number of positions prepared.
        base: the slowest pair turns once in about 2 pi * base positions.

    Raises:
        ValueError: if head_dim is odd.
    """

    def __init__(self, head_dim: int, max_length: int, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"rotary positions turn pairs of numbers: head_dim must be even, got {head_dim}")
        theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)  # [E/2]
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] * theta  # [T, E/2]
        self.cosine: Tensor
        self.sine: Tensor
        cosine, sine = angles.cos().float(), angles.sin().float()
        self.register_buffer("cosine", torch.cat([cosine, cosine], dim=-1), persistent=False)  # [T, E]
        self.register_buffer("sine", torch.cat([-sine, sine], dim=-1), persistent=False)  # [T, E]

    def forward(self, heads: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
        """Return the heads, each position turned by its own angles."""
        length = heads.shape[-2]
        turned: Tensor = _Turned.apply(heads, self.cosine[:length].to(heads.dtype), self.sine[:length].to(heads.dtype))
        return turned


class _Turned(torch.autograd.Function):
    """x * cosine + swapped(x) * sine, in three passes where autograd would make nine each way.

    A rotation's gradient is turned back by the same angle. Halves are swapped by a copy, so that products run over
    whole heads: half a head of 32 numbers is too short for a CPU's vectors in bfloat16.
    """

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        first, second = heads.chunk(2, dim=-1)  # two of [B, H, T, E/2]
        turned = torch.mul(heads, cosine, out=heads.new_empty(heads.shape))
        return turned.addcmul_(torch.cat([second, first], dim=-1), sine)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _Turned.apply(gradients[0], cosine, -sine), None, None
