"""How the steps' work and time grow with the length of a text: amount ~ n^p, and p is fitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headscope.attention.reference import PackedAttention
from headscope.tracing.cost import work
from headscope.tracing.steps import Step, trace


@dataclass(frozen=True)
class Growth:
    """Every step at every length.

    Attributes:
        lengths: n, how many tokens a text had.
        steps: for each step, what was seen at each length.
    """

    lengths: tuple[int, ...]
    steps: dict[str, tuple[Step, ...]]

    def work(self, name: str) -> list[int]:
        """Return how many multiply-adds (divisions, exponentials) a step took at each length."""
        return [work(step) for step in self.steps[name]]

    def seconds(self, name: str) -> list[float]:
        """Return how long a step took at each length."""
        return [step.seconds for step in self.steps[name]]

    def is_view(self, name: str) -> bool:
        """Tell whether a step moved nothing, at any length."""
        return all(step.new_bytes == 0 for step in self.steps[name])


def grow(
    layer: PackedAttention,
    batch: int,
    lengths: Sequence[int],
    repeats: int,
    passed: Callable[[int], None] = lambda length: None,
) -> Growth:
    """Trace the layer on random texts of each length.

    Args:
        layer: the textbook form of multi-head attention.
        batch: B, texts at once.
        lengths: n, one after the other.
        repeats: passes that are timed at each length, after one that warms up.
        passed: called after each pass with the length.
    """
    columns = [_steps(layer, batch, length, repeats, passed) for length in lengths]
    return Growth(tuple(lengths), {row[0].name: row for row in zip(*columns, strict=True)})


def _steps(
    layer: PackedAttention, batch: int, length: int, repeats: int, passed: Callable[[int], None]
) -> tuple[Step, ...]:
    weight = layer.out_proj.weight
    tokens = torch.randn(batch, length, len(weight), device=weight.device).to(weight.dtype)  # [B, n, D]
    return trace(layer, tokens, repeats, lambda: passed(length)).steps


def exponent(lengths: Sequence[int | float], amounts: Sequence[int | float]) -> float | None:
    """Return p of amount = c n^p, fitted by least squares to the logarithms: log amount = log c + p log n.

    Args:
        lengths: n, at least two of them.
        amounts: what was counted or measured at each.

    Returns:
        The exponent; None where an amount is 0, which has no logarithm.
    """
    if min(amounts) <= 0:
        return None
    return float(np.polyfit(np.log(lengths), np.log(amounts), deg=1)[0])
