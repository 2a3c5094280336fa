"""Dropout that costs little on a CPU, where drawing one random number for each element takes a quarter of training."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 256  # a byte decides about an element


class Dropout(nn.Module):
    """Set a share p of the numbers to zero in training and scale the others by 1 / (1 - p) (Srivastava et al. 2014).

    On a CPU each element is decided by one byte of a random 64-bit integer, so that the generator is asked for an
    eighth as many numbers; p is then rounded to a multiple of 1/256, and so is the scale, which keeps the mean right.
    Elsewhere this is torch's own dropout.

    Args:
        p: share of the numbers that are dropped.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.dropped_levels = min(LEVELS - 1, round(p * LEVELS))

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the numbers, some of them dropped if in training mode."""
        if not self.training or self.dropped_levels == 0:
            return numbers
        if numbers.device.type != "cpu":
            return F.dropout(numbers, self.p)
        return numbers * self._scales(numbers)

    def _scales(self, numbers: Tensor) -> Tensor:
        """Return 0 for dropped elements, 1 / (1 - p) for the others."""
        integers = torch.empty(-(-numbers.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        bytes_ = integers.view(torch.uint8)[: numbers.numel()].view(numbers.shape)
        kept = (bytes_ >= self.dropped_levels).to(numbers.dtype)
        return kept.mul_(LEVELS / (LEVELS - self.dropped_levels))

    def extra_repr(self) -> str:
        """Say p in the printed model."""
        return f"p={self.p}"
