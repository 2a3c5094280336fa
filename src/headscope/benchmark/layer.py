"""The attention layer alone, beside torch.nn.MultiheadAttention: forward and backward, masked."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.machine import has_bfloat16
from headscope.benchmark.page import Table
from headscope.benchmark.timing import in_turn

SHAPES = ((32, 128, 256, 8), (8, 256, 256, 8), (128, 32, 256, 8))  # B, T, D, H; the first is the issue's
COLUMNS = ("B, T, D, H", "precision", "dropout", "torch, ms", "headscope, ms", "headscope is faster", "spread")
PASSES = 5  # of each layer in a round


def layer_table(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> Table:
    """Return the times of both layers, with the same weights, for each shape, precision and dropout."""
    precisions = (torch.float32, torch.bfloat16) if has_bfloat16(device) else (torch.float32,)
    rows = [
        _row(shape, precision, dropout, config, device, tell)
        for shape in SHAPES
        for precision in precisions
        for dropout in (0.0, 0.1)
    ]
    return Table(
        "The attention layer: forward and backward, a quarter of the keys hidden",
        COLUMNS,
        rows,
        ("need_weights=False for both, which is torch's faster way. The whole layer, projections included.",),
    )


def _row(
    shape: tuple[int, int, int, int],
    precision: torch.dtype,
    dropout: float,
    config: BenchmarkConfig,
    device: torch.device,
    tell: Callable[[str], object],
) -> tuple[str, ...]:
    _, _, D, H = shape
    layers = [
        make(D, H, dropout, batch_first=True, device=device, dtype=precision)
        for make in (nn.MultiheadAttention, MultiHeadAttention)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    tokens, mask = _input(shape, precision, device)
    named = zip(("torch", "headscope"), layers, strict=True)
    works = {name: partial(_passes, layer, tokens, mask) for name, layer in named}
    found = in_turn(works, config.rounds, device, lambda doing: tell(f"layer {shape}: {doing}"))
    theirs, ours = found["torch"], found["headscope"]
    return (
        ", ".join(map(str, shape)),
        str(precision).removeprefix("torch."),
        f"{dropout:g}",
        f"{theirs.median / PASSES * 1e3:.1f}",
        f"{ours.median / PASSES * 1e3:.1f}",
        f"{theirs.ratio_to(ours):.2f}x",
        f"{max(theirs.spread, ours.spread):.0%}",
    )


def _input(shape: tuple[int, int, int, int], precision: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return tokens [B, T, D], and True at the last keys [B, T], of half of the texts all up to the middle."""
    B, T, D, _ = shape
    tokens = torch.randn(B, T, D, device=device).to(precision).requires_grad_()
    lengths = torch.where(torch.arange(B) % 2 == 0, T, T // 2).to(device)
    return tokens, torch.arange(T, device=device) >= lengths[:, None]


def _passes(layer: nn.Module, tokens: Tensor, mask: Tensor) -> None:
    for _ in range(PASSES):
        output, _ = layer(tokens, tokens, tokens, key_padding_mask=mask, need_weights=False)
        output.sum().backward()
