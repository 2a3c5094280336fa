"""trace_attention(config): self-attention step by step, with shapes, cost and time of each step.

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
EXAMPLE = {"B": 1, "T": 3, "D": 4, "H": 2}
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
    """A step as it was run: how many tensors, their shape, that of one head's part, the time."""

    step: Step
    tensors: int
    shape: tuple[int, ...]
    head: tuple[int, ...]
    seconds: float


@torch.no_grad()
def trace(layer: PackedAttention, X: Tensor, padding: Tensor, repeats: int = 1) -> list[Row]:
    """Return every step; times are the median of `repeats` passes after a first one."""
    E = X.shape[-1] // layer.num_heads
    times: list[list[float]] = [[] for _ in STEPS]
    for _ in range(repeats + 1):
        rows = []
        started = now(X.device)
        for step, seconds, tensors in zip(
            STEPS, times, computation(layer, X, padding), strict=True
        ):
            seconds.append(now(X.device) - started)
            output = tensors[0]
            head = output[:, 0] if output.dim() == 4 else output[..., :E]
            shapes = (tuple(output.shape), tuple(head.shape))
            rows.append(Row(step, len(tensors), *shapes, median(seconds[1:] or seconds)))
            started = now(X.device)
    return rows


def count(cost: str, sizes: Sizes) -> int:
    """Return the value of a cost such as B·T·3·D·D."""
    return math.prod(int(sizes.get(factor, factor)) for factor in cost.split("·"))


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print the steps of multi-head attention at the given sizes and of a small example.

    With `grow`, print instead how work and time of each step grow with the length.

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
    B, length, D, H = (config.sizes[key] for key in ("batch", "seq_len", "d_model", "num_heads"))
    lengths = config.all_lengths if config.grow else [length]
    all_sizes = [{"B": B, "T": T, "D": D, "H": H, "E": D // H} for T in lengths]
    try:
        inputs = [make_inputs(sizes, config.bias, device, dtype) for sizes in all_sizes]
        traces = [trace(*each, config.repeats) for each in inputs]
    except RuntimeError as error:  # of torch's allocator: "not enough memory", "out of memory"
        if "memory" not in str(error):
            raise
        raise ConfigError(
            f"seq_len: {lengths[-1]} tokens in a batch of {B} do not fit into memory; "
            f"take fewer ({str(error).splitlines()[0]})"
        ) from error
    lines = [
        f"{config.dtype} on {device.type}, torch {torch.__version__}; times are the median of "
        f"{config.repeats} passes; in O(), n is T and d is D"
    ]
    if config.grow:
        tables = [_growth_table(traces, all_sizes)]
        lines.append(
            "with twice the tokens: projections twice the work, scores, softmax and weighted sum "
            "four times"
        )
    else:
        example = make_inputs(EXAMPLE, config.bias, torch.device("cpu"), torch.float32)
        tables = [_step_table(inputs[0][0], traces[0], all_sizes[0]), _example_table(*example)]
    for table in tables:
        console.print(table)
    for line in lines:
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


def _step_table(layer: PackedAttention, rows: list[Row], sizes: Sizes) -> Table:
    D = sizes["D"]
    E = sizes["E"]
    title = "self-attention, " + ", ".join(f"{letter}={size}" for letter, size in sizes.items())
    headings = ("step\nformula", "weights\nof one head", "all heads\none head", "count", "time")
    table = _table(title, *headings, left=3)
    table.add_row("input\nX", "", str((sizes["B"], sizes["T"], D)))
    weights = {
        "project to Q, K, V": f"({D}, {3 * D})\n3 × ({D}, {E})",
        "output projection": f"({D}, {D})\n({E}, {D})",
    }
    for step, tensors, shape, head, seconds in rows:
        times = f"{tensors} × " if tensors > 1 else ""
        shapes = f"{times}{shape}"
        if step is STEPS[0]:
            shapes += f"\n3 × {head}"
        elif step is not STEPS[-1]:
            shapes += f"\n{times}{head}"
        amount = f"{step.unit}\n0"
        if step.cost != "0":
            amount = f"{count(step.cost, sizes):,} {step.unit}\n{step.cost}"
        name = f"{step.name}\n{step.formula}"
        amount = f"{amount}, {step.order}"
        table.add_row(name, weights.get(step.name, ""), shapes, amount, _time(seconds))
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    total = sum(count(step.cost, sizes) for step in STEPS if step.unit == MULTIPLY_ADDS)
    seconds = sum(row.seconds for row in rows)
    table.add_section()
    table.add_row(
        "total", f"{parameters:,}\nparameters", "", f"{total:,} {MULTIPLY_ADDS}", _time(seconds)
    )
    return table


def _growth_table(traces: list[list[Row]], all_sizes: list[Sizes]) -> Table:
    sizes = ", ".join(f"{letter}={all_sizes[0][letter]}" for letter in "BDHE")
    lengths = [f"T={each['T']}" for each in all_sizes]
    title = f"{sizes}, count and time for texts of T tokens"
    table = _table(title, "step", *lengths, "grows", left=1)
    for column in zip(*traces, strict=True):
        step = column[0].step
        cells = [
            f"{_scaled(float(count(step.cost, each)), COUNTS)}\n{_time(row.seconds)}"
            for row, each in zip(column, all_sizes, strict=True)
        ]
        table.add_row(f"{step.name}\n({step.unit})", *cells, step.order)
    table.add_section()
    table.add_row("total time", *(_time(sum(row.seconds for row in rows)) for rows in traces))
    return table


@torch.no_grad()
def _example_table(layer: PackedAttention, X: Tensor, padding: Tensor) -> Table:
    """Return every step of a small example with its numbers, heads side by side."""
    title = "a small example, its last token padding"
    table = _table(title, "step\nshape", "numbers, heads side by side", left=2)
    names = ["input", *(step.name for step in STEPS)]
    for name, tensors in zip(names, [(X,), *computation(layer, X, padding)], strict=True):
        shape = str(tuple(tensors[0].shape))
        labels = " "
        if len(tensors) > 1:
            shape = f"{len(tensors)} × {shape}"
            labels = "QKV"
        table.add_row(f"{name}\n{shape}", "\n".join(map(_numbers, labels, tensors)))
        table.add_section()
    return table


def _numbers(label: str, tensor: Tensor) -> str:
    """Return the first text of a tensor, one line for each token."""
    heads = tensor[0] if tensor.dim() == 4 else tensor  # [H, T, columns], or [1, T, columns]
    lines = []
    for token in heads.transpose(0, 1).tolist():
        parts = ["".join(f"{number:6.2f}" for number in head) for head in token]
        lines.append(f"{label} {' │'.join(parts)}")
    return "\n".join(lines)


TIMES = {" s": 1.0, " ms": 1e-3, " µs": 1e-6}
COUNTS = {" G": 1e9, " M": 1e6, " k": 1e3, "": 1.0}


def _time(seconds: float) -> str:
    return _scaled(seconds, TIMES)


def _scaled(amount: float, units: dict[str, float]) -> str:
    """Return three digits and the largest unit that is not above the amount."""
    fitting = [unit for unit, size in units.items() if amount >= size]
    unit = fitting[0] if fitting else list(units)[-1]
    return f"{amount / units[unit]:.3g}{unit}"
