"""trace_attention(config): self-attention step by step, with shapes, values, cost and time.

`steps` is the textbook's computation; all that is printed is read off its tensors. B texts of T
tokens, D model width, H heads, E = D / H width of a head; in O(...), n is T and d is D.
"""

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from headscope.attention.reference import PackedAttention
from headscope.ground.errors import ConfigError
from headscope.heads.capture import now
from headscope.settings.commands import TraceConfig

PIPE_WIDTH = 140  # columns where the output is a file or a pipe


class Step(NamedTuple):
    """A step: its formula, the multiply-adds that it takes, how they grow, and what it makes."""

    name: str
    formula: str
    multiply_adds: int
    order: str
    made: tuple[Tensor, ...]


def steps(
    layer: PackedAttention, X: Float[Tensor, "B T D"], padding: Bool[Tensor, "B T"]
) -> Iterator[Step]:
    """Yield each step once it is computed; `padding` is True at padding."""
    B, T, D = X.shape
    H = layer.num_heads
    E = D // H
    packed = layer.in_proj(X)  # [B, T, 3D]
    yield Step("project to Q, K, V", "X W_in + b_in", B * T * 3 * D * D, "O(n·d²)", (packed,))
    parts = packed.chunk(3, dim=-1)  # three of [B, T, D]
    yield Step("cut into Q, K, V", "D columns each", 0, "O(1)", parts)
    Q, K, V = (part.unflatten(-1, (H, E)).transpose(1, 2) for part in parts)  # [B, H, T, E]
    yield Step("split into heads", "Q_i, K_i, V_i: E columns each", 0, "O(1)", (Q, K, V))
    S = Q @ K.transpose(-2, -1)  # [B, H, T, T]
    yield Step("scores", "S_i = Q_i K_iᵀ", B * H * T * T * E, "O(n²·d)", (S,))
    S = S / math.sqrt(E)
    yield Step("scale", "S_i / √E", 0, "O(n²)", (S,))
    S = S.masked_fill(padding[:, None, None], -math.inf)
    yield Step("mask", "-inf where a key is padding", 0, "O(n²)", (S,))
    A = S.softmax(dim=-1)  # [B, H, T, T], each row sums to 1
    yield Step("softmax", "A_i = exp(S_i) / row sums", 0, "O(n²)", (A,))
    heads = A @ V  # [B, H, T, E]
    yield Step("weighted sum", "head_i = A_i V_i", B * H * T * T * E, "O(n²·d)", (heads,))
    merged = heads.transpose(1, 2).flatten(2)  # [B, T, D]
    yield Step("concatenate heads", "Concat(head_1, ..., head_H)", 0, "O(n·d)", (merged,))
    output = layer.out_proj(merged)  # [B, T, D]
    yield Step("output projection", "Concat(...) W_O + b_O", B * T * D * D, "O(n·d²)", (output,))


@torch.no_grad()
def trace(
    layer: PackedAttention, X: Tensor, padding: Tensor, repeats: int = 1
) -> tuple[list[Step], list[float]]:
    """Return the steps, and the seconds of each: the median of `repeats` passes after one."""
    passes = []
    for _ in range(repeats + 1):
        done = []
        times = [now(X.device)]
        for step in steps(layer, X, padding):
            done.append(step)
            times.append(now(X.device))
        passes.append(np.diff(times))
    return done, np.median(passes[1:], axis=0).tolist()


def values(tensor: Tensor) -> str:
    """Return the first numbers and the last of the first text's first token, in its first head."""
    row = tensor.flatten(0, -2)[0].tolist()
    ends = [f"{number:.2f}" for number in row[:3]]
    return " ".join([*ends, "...", f"{row[-1]:.2f}"] if len(row) > 3 else ends)


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print the steps of multi-head attention: shapes, values, multiply-adds and time.

    Raises:
        ConfigError: if there is no such device.
    """
    if console is None:
        console = Console()
        if not (console.is_terminal or "COLUMNS" in os.environ):
            console = Console(width=PIPE_WIDTH)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: expected auto or cpu, got cuda; torch finds no CUDA GPU here")
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    dtype: torch.dtype = getattr(torch, config.dtype)
    B = config.batch
    T = config.seq_len
    D = config.d_model
    H = config.num_heads
    torch.manual_seed(0)
    lengths = torch.linspace((2 * T + 2) // 3, T, B).long()
    padding = torch.arange(T) >= lengths[:, None]  # [B, T]
    layer = PackedAttention(D, H, config.bias).to(device, dtype)
    X = torch.randn(B, T, D).to(device, dtype)
    done, seconds = trace(layer, X, padding.to(device), config.repeats)
    console.print(
        _table(f"self-attention, B={B}, T={T}, D={D}, H={H}, E={D // H}", X, done, seconds)
    )
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    line = (
        f"{parameters:,} parameters, {config.dtype} on {device.type}, torch {torch.__version__}; "
        f"times are the median of {config.repeats} passes; in O(), n is T and d is D"
    )
    console.print(line, highlight=False, markup=False)


def _table(title: str, X: Tensor, done: list[Step], seconds: list[float]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("step", "formula", "shape", "first token, first head"):
        table.add_column(heading, overflow="fold")
    for heading in ("multiply-adds", "grows", "ms"):
        table.add_column(heading, overflow="fold", justify="right")
    table.add_row("input", "X", str(tuple(X.shape)), values(X))
    for step, time in zip(done, seconds, strict=True):
        times = f"{len(step.made)} × " if len(step.made) > 1 else ""
        shape = f"{times}{tuple(step.made[0].shape)}"
        cost = f"{step.multiply_adds:,}" if step.multiply_adds else ""
        shown = values(step.made[0])
        table.add_row(step.name, step.formula, shape, shown, cost, step.order, f"{1e3 * time:.3g}")
    table.add_section()
    total = sum(step.multiply_adds for step in done)
    table.add_row("total", "", "", "", f"{total:,}", "", f"{1e3 * sum(seconds):.3g}")
    return table
