"""What a claim is: numbers that were found, the numbers that they must equal, and how far apart they may be.

What is found is computed in the type and on the device that are asked for; every oracle computes in float64 on the CPU,
from the same weights and inputs (rounded to that type), so that a difference is our rounding and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention

# What may be lost by rounding: of numbers up to 1 so much, of larger ones that share, but in float64 always so much.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Claim:
    """Something that must hold.

    Attributes:
        name: what is claimed.
        oracle: what it is held against.
        absolute: largest difference between a number found and the one expected.
        relative: the same as a share of the largest number expected.
        tolerance: the largest absolute difference that is allowed.
    """

    name: str
    oracle: str
    absolute: float
    relative: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the claim holds; a difference that is no number fails."""
        return self.absolute <= self.tolerance


@dataclass(frozen=True)
class Terms:
    """What the claims are made of.

    Attributes:
        dtype: type of what is found.
        device: where it is found.
        layer: the layer that is to be proved. The tests put wrong ones here, which must be found out.
    """

    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    layer: type[MultiHeadAttention] = MultiHeadAttention

    def exact(self, *shape: int) -> Tensor:
        """Draw numbers in float64 that the claims' type holds without loss, to be differentiated."""
        return torch.randn(*shape, dtype=torch.float64).to(self.dtype).double().requires_grad_()

    def here(self, tensor: Tensor) -> Tensor:
        """Return an oracle's tensor in the claims' type and place, masks in their own type."""
        moved = tensor.detach().to(self.device, self.dtype if tensor.is_floating_point() else None)
        return moved.requires_grad_(tensor.requires_grad)

    def rounded(self, module: nn.Module) -> nn.Module:
        """Draw an oracle's parameters anew, biases too, and round them to the claims' type; keep them in float64."""
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_((0.3 * torch.randn_like(parameter)).to(self.dtype))
        return module

    def claim(
        self, name: str, oracle: str, pairs: Sequence[tuple[Tensor, Tensor]], tolerance: float | None = None
    ) -> Claim:
        """Compare what was found with what is expected, pair by pair.

        Args:
            name: what is claimed.
            oracle: what it is held against.
            pairs: (found, expected), of one shape.
            tolerance: an absolute one; by default what the type may lose, TOLERANCES.
        """
        for found, expected in pairs:
            if found.shape != expected.shape:
                raise ValueError(f"{name}: found {list(found.shape)}, expected {list(expected.shape)}")
        differences = torch.stack([(found.detach().cpu().double() - expected.detach().cpu().double()).abs().max()
                                   for found, expected in pairs])  # fmt: skip
        sizes = torch.stack([expected.detach().cpu().double().abs().max() for _, expected in pairs])
        scale = sizes.clamp(min=1.0)
        # The pair that is worst off speaks for all of them. max() takes a NaN over any number.
        worst = int((differences / scale).argmax())
        share = 1.0 if self.dtype == torch.float64 else scale[worst].item()
        allowed = TOLERANCES[self.dtype] * share if tolerance is None else tolerance
        absolute, size = differences[worst].item(), sizes[worst].item()
        return Claim(name, oracle, absolute, absolute / size if size else absolute, allowed)
