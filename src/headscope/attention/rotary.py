"""Rotary positions: a place is written into queries and keys as a rotation."""

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
        self.register_buffer("cosine", angles.cos().float(), persistent=False)
        self.register_buffer("sine", angles.sin().float(), persistent=False)

    def forward(self, heads: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
        """Return the heads, each position turned by its own angles."""
        length = heads.shape[-2]
        cosine, sine = self.cosine[:length].to(heads.dtype), self.sine[:length].to(heads.dtype)  # [T, E/2]
        first, second = heads.chunk(2, dim=-1)  # two of [B, H, T, E/2]
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
