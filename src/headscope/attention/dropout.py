"""Dropout that costs little on a CPU.

torch draws a random number for each element there, one after the other. Here one number of 64 bits decides about eight
elements, a byte about each, by torch's own generator, so that torch.manual_seed and a kept state decide about it.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 256  # a byte decides about an element
WORD = 8  # bytes of a random number


def dropped_levels(p: float) -> int:
    """Return how many of the 256 values of a byte mean that an element is dropped: p, rounded to 1/256.

    Between 0 and 1 it is at least 1 and at most 255, so that neither nothing nor everything is dropped unasked.

    Raises:
        ValueError: if p is not in [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout takes a share from 0 to 1, got {p}")
    return int(p) * LEVELS if p in (0, 1) else min(max(round(p * LEVELS), 1), LEVELS - 1)


def dropped(numbers: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Return numbers * m / (1 - p), m being 0 with probability p and else 1 (Srivastava et al. 2014, Dropout).

    Args:
        numbers: of any shape, which the result has too.
        p: share of the numbers that are dropped. On a CPU it is rounded to a multiple of 1/256, from 1/256 to 255/256
            unless it is 0 or 1, and the scale with it, which keeps the mean right. 1 gives zeros, as in torch.

    Raises:
        ValueError: if p is not in [0, 1].
    """
    levels = dropped_levels(p)
    if levels == 0:
        return numbers
    if numbers.device.type != "cpu":
        return F.dropout(numbers, p)
    if levels == LEVELS:
        return numbers * 0.0
    words = torch.randint(-(2**63), 2**63 - 1, (-(-numbers.numel() // WORD),))
    bytes_ = words.view(torch.uint8)[: numbers.numel()].view(numbers.shape)
    # As numbers of the same kind: torch turns bytes into these faster than truths, and would do so in either pass.
    kept = (bytes_ >= levels).view(torch.uint8).to(numbers.dtype).mul_(LEVELS / (LEVELS - levels))
    return numbers * kept


class Dropout(nn.Module):
    """Set a share p of the numbers to zero in training and scale the others by 1 / (1 - p), as `dropped` says.

    On a CPU p is rounded to a multiple of 1/256: 0.0015 drops 1/256. Elsewhere this is torch's own dropout.

    Args:
        p: share of the numbers that are dropped.

    Raises:
        ValueError: if p is not in [0, 1].
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        dropped_levels(p)  # refuses what is no share
        self.p = p

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the numbers, some of them dropped if in training mode."""
        return dropped(numbers, self.p) if self.training else numbers

    def extra_repr(self) -> str:
        """Say p in the printed model."""
        return f"p={self.p}"
