"""Letting others see what an attention layer looks at, without changing what it computes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Rows = slice | list[int]
ALL = slice(None)


@dataclass(frozen=True)
class Seen:
    """One forward pass of an attention layer, as its observer sees it.

    Attributes:
        shape: B, H, Q, K of the weights.
        key_padding_mask: [B, K], True at padding; None where there is none.
        like: a tensor of the pass, for its device and type.
        compute: from rows of the batch, and the type to compute in, to their weights [R, H, Q, K].
        compare: returns how far what the layer went on with is from these weights times the values, at most.
        values: [B, H, K, E], what the weights average; None where the layer is not one of ours with heads.
    """

    shape: tuple[int, int, int, int]
    key_padding_mask: Bool[Tensor, "B K"] | None
    like: Tensor
    compute: Callable[[Rows, torch.dtype], Tensor]
    compare: Callable[[], Tensor]
    values: Float[Tensor, "B H K E"] | None = None

    def weights(self, rows: Rows = ALL) -> Float[Tensor, "R H Q K"]:
        """Return the weights of some texts of the batch, in float32 (or float64 where the model computes in it)."""
        precision = torch.promote_types(self.like.dtype, torch.float32)
        with torch.no_grad(), torch.autocast(self.like.device.type, enabled=False):
            return self.compute(rows, precision)

    def difference(self) -> float:
        """Return the largest difference between the layer's sums and the same sums made with these weights.

        The layer used a fused kernel, which never builds the weights: this says that they are the ones it used.
        """
        with torch.no_grad():
            return float(self.compare())


Observer = Callable[[Seen], None]


class ObservedAttention(nn.Module):
    """An attention layer that tells its observer, if it has one, about each forward pass.

    Attributes:
        observer: called with what was seen; `headscope.inspection.capture` is how it is meant to be used.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observer: Observer | None = None
