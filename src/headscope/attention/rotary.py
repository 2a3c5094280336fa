"""Rotary positions: a place is written into queries and keys as a rotation."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Turn each pair of numbers of a head by an angle that grows with the position.

    The pair (x_2j, x_2j+1) at position t becomes its rotation by the angle t * theta_j, theta_j = base^(-2j / E), so
    that the product of a query at i and a key at j depends on i - j alone (Su et al. 2021, RoFormer, section 3.2). As
    a complex number z = x_2j + i x_2j+1 that is z * exp(i t theta_j), one product. It holds no parameters.

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
            raise ValueError(
                f"rotary positions turn pairs of numbers: head_dim must be even, got {head_dim}"
            )
        theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)  # [E/2]
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] * theta  # [T, E/2]
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", angles.cos().float(), persistent=False)  # [T, E/2]
        self.register_buffer("sine", angles.sin().float(), persistent=False)  # [T, E/2]

    def forward(self, heads: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
        """Return the heads, each position turned by its own angles; ValueError if there are more than max_length."""
        kind = torch.promote_types(
            heads.dtype, torch.float32
        )  # there are no complex numbers of two bytes each
        length = heads.shape[-2]
        if length > len(self.cosine):
            raise ValueError(
                f"rotary positions are prepared for {len(self.cosine)} tokens (max_length), got {length}"
            )
        turns = torch.complex(self.cosine[:length].to(kind), self.sine[:length].to(kind))[
            :, None
        ]  # [T, 1, E/2]
        turns = turns.expand(
            -1, heads.shape[1], -1
        ).contiguous()  # [T, H, E/2]: one long row for each position
        pairs = torch.view_as_complex(
            heads.transpose(1, 2).to(kind).unflatten(-1, (-1, 2))
        )  # [B, T, H, E/2]
        turned: Tensor = torch.view_as_real(pairs * turns)  # [B, T, H, E/2, 2]
        return turned.flatten(-2).transpose(1, 2).to(heads.dtype)
