"""trace_attention(config): self-attention step by step, with shapes, values, cost and time.

`computation` is the textbook's computation, one line for each step; all that is printed is read
off its tensors. B texts of T tokens, D model width, H heads, E = D / H width of a head; in O(...),
n is T and d is D.
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

PIPE_WIDTH = 110  # columns where the output is a file or a pipe
MULTIPLY_ADDS = "multiply-adds"
Sizes = dict[str, int]


class Step(NamedTuple):
    """A step in theory: its formula, how many of its unit it takes, and how that grows."""

    name: str
    formula: str
    cost: str  # a product of sizes
    order: str
    unit: str = MULTIPLY_ADDS


STEPS = (
    Step("project to Q, K, V", "X W_in + b_in", "B·T·3·D·D", "O(n·d²)"),
    Step("cut into Q, K, V", "D columns each", "0", "O(1)", "a view"),
    Step("split into heads", "Q_i, K_i, V_i: E columns each", "0", "O(1)", "a view"),
    Step("scores", "S_i = Q_i K_iᵀ", "B·H·T·T·E", "O(n²·d)"),
    Step("scale", "S_i / √E", "B·H·T·T", "O(n²)", "divisions"),
    Step("mask", "-inf where a key is padding", "B·H·T·T", "O(n²)", "numbers set"),
    Step("softmax", "A_i = exp(S_i) / row sums", "B·H·T·T", "O(n²)", "exponentials"),
    Step("weighted sum", "head_i = A_i V_i", "B·H·T·T·E", "O(n²·d)"),
    Step("concatenate heads", "Concat(head_1, ..., head_H)", "0", "O(n·d)", "a copy"),
    Step("output projection", "Concat(...) W_O + b_O", "B·T·D·D", "O(n·d²)"),
)


def computation(
    layer: PackedAttention, X: Float[Tensor, "B T D"], padding: Bool[Tensor, "B T"]
) -> Iterator[tuple[Tensor, ...]]:
    """Yield what each of STEPS makes; `padding` is True at padding."""
    H = layer.num_heads
    E = X.shape[-1] // H
    packed = layer.in_proj(X)  # [B, T, 3D]
    yield (packed,)
    parts = packed.chunk(3, dim=-1)  # three of [B, T, D]
    yield parts
    Q, K, V = (part.unflatten(-1, (H, E)).transpose(1, 2) for part in parts)  # [B, H, T, E]
    yield Q, K, V
    S = Q @ K.transpose(-2, -1)  # [B, H, T, T]
    yield (S,)
    S = S / math.sqrt(E)
    yield (S,)
    S = S.masked_fill(padding[:, None, None], -math.inf)
    yield (S,)
    A = S.softmax(dim=-1)  # [B, H, T, T], each row sums to 1
    yield (A,)
    heads = A @ V  # [B, H, T, E]
    yield (heads,)
    merged = heads.transpose(1, 2).flatten(2)  # [B, T, D]
    yield (merged,)
    yield (layer.out_proj(merged),)  # [B, T, D]


@torch.no_grad()
def trace(
    layer: PackedAttention, X: Tensor, padding: Tensor, repeats: int = 1
) -> tuple[list[tuple[Tensor, ...]], list[float]]:
    """Return what each step makes, and its seconds: the median of `repeats` passes after one."""
    passes = []
    for _ in range(repeats + 1):
        made = []
        times = [now(X.device)]
        for tensors in computation(layer, X, padding):
            made.append(tensors)
            times.append(now(X.device))
        passes.append(np.diff(times))
    return made, np.median(passes[1:], axis=0).tolist()


def values(tensor: Tensor) -> str:
    """Return the first numbers and the last of the first text's first token, in its first head."""
    row = tensor.flatten(0, -2)[0].tolist()
    ends = [f"{number:.2f}" for number in row[:3]]
    return " ".join([*ends, "...", f"{row[-1]:.2f}"] if len(row) > 3 else ends)


def count(cost: str, sizes: Sizes) -> int:
    """Return the value of a cost such as B·T·3·D·D."""
    return math.prod(int(sizes.get(factor, factor)) for factor in cost.split("·"))


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print the steps of multi-head attention with shapes and values, then what each costs.

    Raises:
        ConfigError: if there is no such device, or not enough memory.
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
    H = config.heads
    sizes = {"B": B, "T": T, "D": D, "H": H, "E": D // H}
    torch.manual_seed(0)
    lengths = torch.linspace((2 * T + 2) // 3, T, B).long()
    padding = torch.arange(T) >= lengths[:, None]  # [B, T]
    try:
        layer = PackedAttention(D, H, config.bias).to(device, dtype)
        X = torch.randn(B, T, D).to(device, dtype)
        made, seconds = trace(layer, X, padding.to(device), config.repeats)
    except RuntimeError as error:  # of torch's allocator: "not enough memory", "out of memory"
        if "memory" not in str(error):
            raise
        raise ConfigError(
            f"seq_len: {T} tokens in a batch of {B} do not fit into memory; "
            f"take fewer ({str(error).splitlines()[0]})"
        ) from error
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    console.print(_step_table(X, made, sizes))
    console.print(_cost_table(seconds, sizes))
    line = (
        f"{parameters:,} parameters, {config.dtype} on {device.type}, torch {torch.__version__}; "
        f"times are the median of {config.repeats} passes; in O(), n is T and d is D"
    )
    console.print(line, highlight=False, markup=False)


def _table(title: str, *headings: str, left: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    return table


def _step_table(X: Tensor, made: list[tuple[Tensor, ...]], sizes: Sizes) -> Table:
    title = "self-attention, " + ", ".join(f"{letter}={size}" for letter, size in sizes.items())
    table = _table(title, "step", "formula", "shape", "first token, first head", left=4)
    table.add_row("input", "X", str(tuple(X.shape)), values(X))
    for step, tensors in zip(STEPS, made, strict=True):
        times = f"{len(tensors)} × " if len(tensors) > 1 else ""
        shape = f"{times}{tuple(tensors[0].shape)}"
        table.add_row(step.name, step.formula, shape, values(tensors[0]))
    return table


def _cost_table(seconds: list[float], sizes: Sizes) -> Table:
    table = _table("what each step costs", "step", "count", "", "grows", "time", left=1)
    total = 0
    for step, time in zip(STEPS, seconds, strict=True):
        number = count(step.cost, sizes)
        amount = f"{number:,} {step.unit}" if number else step.unit
        total += number if step.unit == MULTIPLY_ADDS else 0
        table.add_row(step.name, amount, step.cost.strip("0"), step.order, _time(time))
    table.add_section()
    table.add_row("total", f"{total:,} {MULTIPLY_ADDS}", "", "", _time(sum(seconds)))
    return table


def _time(seconds: float) -> str:
    """Return three digits and the largest unit that is not above the time."""
    for unit, size in ((" s", 1.0), (" ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds / 1e-6:.3g} µs"
