"""Rotary positions: a position is written into queries and keys as a rotation."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Rotate each pair of numbers of a head by an angle that grows with the position.

    At position t the pair (x_2j, x_2j+1) is rotated by the angle t theta_j, theta_j = base^(-2j /
    E), so that the product of a query at i and a key at j depends on i - j only (Su et al. 2021,
    RoFormer, section 3.2). As a complex number z = x_2j + i x_2j+1 that is one product, z exp(i t
    theta_j), in PyTorch seven times as fast as its four products of real numbers. ONNX has no
    complex numbers: `torch.export` gets those, which give the same bits. There are no parameters.

    Args:
        head_dim: E, width of a head; must be even.
        max_length: most positions of a text.
        base: the slowest pair rotates once in about 2 pi base positions.

    Raises:
        ValueError: if head_dim is odd; in the forward pass, if a text is longer than max_length.
    """

    def __init__(self, head_dim: int, max_length: int, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(
                f"head_dim: expected an even number for rotary positions, got {head_dim}"
            )
        theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)  # [E/2]
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] * theta  # [T, E/2]
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", angles.cos().float(), persistent=False)  # [T, E/2]
        self.register_buffer("sine", angles.sin().float(), persistent=False)  # [T, E/2]

    def forward(self, heads: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
        """Return the heads, each position rotated by its own angles."""
        _, H, T, _ = heads.shape
        if len(self.cosine) < T:
            raise ValueError(f"expected at most max_length={len(self.cosine)} tokens, got {T}")
        dtype = torch.promote_types(heads.dtype, torch.float32)  # no complex type has 16-bit parts
        cosine = self.cosine[:T].to(dtype)  # [T, E/2]
        sine = self.sine[:T].to(dtype)
        pairs = heads.transpose(1, 2).to(dtype).unflatten(-1, (-1, 2))  # [B, T, H, E/2, 2]
        if torch.compiler.is_exporting():
            rotated = rotated_in_reals(pairs, cosine[:, None], sine[:, None])
        else:
            rotation = torch.complex(cosine, sine)
            # Repeated for each head, so that a position is one contiguous row: faster than to
            # broadcast.
            rotation = rotation[:, None].expand(-1, H, -1).contiguous()  # [T, H, E/2]
            rotated = torch.view_as_real(torch.view_as_complex(pairs) * rotation)
        return rotated.flatten(-2).transpose(1, 2).to(heads.dtype)


def rotated_in_reals(
    pairs: Float[Tensor, "*dims 2"], cosine: Float[Tensor, "..."], sine: Float[Tensor, "..."]
) -> Float[Tensor, "*dims 2"]:
    """Return (x cos - y sin, x sin + y cos) for each pair (x, y)."""
    x, y = pairs.unbind(-1)
    return torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1)
