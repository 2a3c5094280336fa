"""trace_attention(config): self-attention step by step, with shapes, values, cost and time.

`computation` is the textbook's computation, one line for each step; all that is printed is read
off its tensors. B texts of T tokens, D model width, H heads, E = D / H width of a head; in O(...),
n is T and d is D.
"""

import math
import os
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from headscope.attention.reference import PackedAttention
from headscope.command_settings import TraceConfig
from headscope.errors import ConfigError
from headscope.heads.capture import now

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


class Row(NamedTuple):
    """A step as it was run: how many tensors, their shape, values of the first token, the time."""

    step: Step
    tensors: int
    shape: tuple[int, ...]
    values: str
    seconds: float


@torch.no_grad()
def trace(layer: PackedAttention, X: Tensor, padding: Tensor, repeats: int = 1) -> list[Row]:
    """Return every step; times are the median of `repeats` passes after a first one."""
    times: list[list[float]] = [[] for _ in STEPS]
    for _ in range(repeats + 1):
        rows = []
        started = now(X.device)
        for step, seconds, tensors in zip(
            STEPS, times, computation(layer, X, padding), strict=True
        ):
            seconds.append(now(X.device) - started)
            output = tensors[0]
            time = median(seconds[1:] or seconds)
            rows.append(Row(step, len(tensors), tuple(output.shape), values(output), time))
            started = now(X.device)
    return rows


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
    sizes = {"B": B, "T": T, "D": D, "H": config.heads, "E": D // config.heads}
    try:
        layer, X, padding = make_inputs(sizes, config.bias, device, dtype)
        rows = trace(layer, X, padding, config.repeats)
    except RuntimeError as error:  # of torch's allocator: "not enough memory", "out of memory"
        if "memory" not in str(error):
            raise
        raise ConfigError(
            f"seq_len: {T} tokens in a batch of {B} do not fit into memory; "
            f"take fewer ({str(error).splitlines()[0]})"
        ) from error
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    console.print(_step_table(X, rows, sizes))
    console.print(_cost_table(rows, sizes))
    line = (
        f"{parameters:,} parameters, {config.dtype} on {device.type}, torch {torch.__version__}; "
        f"times are the median of {config.repeats} passes; in O(), n is T and d is D"
    )
    console.print(line, highlight=False, markup=False)


def make_inputs(
    sizes: Sizes, bias: bool, device: torch.device, dtype: torch.dtype
) -> tuple[PackedAttention, Tensor, Tensor]:
    """Return a layer, tokens, and the padding of texts of 2/3 T to T tokens."""
    B, T, D, H = (sizes[letter] for letter in "BTDH")
    torch.manual_seed(0)
    layer = PackedAttention(D, H, bias).to(device, dtype)
    lengths = torch.linspace((2 * T + 2) // 3, T, B).long()
    padding = torch.arange(T) >= lengths[:, None]  # [B, T]
    return layer, torch.randn(B, T, D).to(device, dtype), padding.to(device)


def _table(title: str, *headings: str, left: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    return table


def _step_table(X: Tensor, rows: list[Row], sizes: Sizes) -> Table:
    title = "self-attention, " + ", ".join(f"{letter}={size}" for letter, size in sizes.items())
    table = _table(title, "step", "formula", "shape", "first token, first head", left=4)
    table.add_row("input", "X", str(tuple(X.shape)), values(X))
    for row in rows:
        times = f"{row.tensors} × " if row.tensors > 1 else ""
        table.add_row(row.step.name, row.step.formula, f"{times}{row.shape}", row.values)
    return table


def _cost_table(rows: list[Row], sizes: Sizes) -> Table:
    table = _table("what each step costs", "step", "count", "", "grows", "time", left=1)
    for step, *_, seconds in rows:
        amount = step.unit if step.cost == "0" else f"{count(step.cost, sizes):,} {step.unit}"
        table.add_row(step.name, amount, step.cost.strip("0"), step.order, _time(seconds))
    total = sum(count(row.step.cost, sizes) for row in rows if row.step.unit == MULTIPLY_ADDS)
    table.add_section()
    seconds = sum(row.seconds for row in rows)
    table.add_row("total", f"{total:,} {MULTIPLY_ADDS}", "", "", _time(seconds))
    return table


def _time(seconds: float) -> str:
    """Return three digits and the largest unit that is not above the time."""
    for unit, size in ((" s", 1.0), (" ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds / 1e-6:.3g} µs"
