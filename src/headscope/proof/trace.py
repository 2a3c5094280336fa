"""trace_attention(config): self-attention step by step, with the shape, the cost and the time of each step.

`computation` is the textbook's computation, one line for each step; everything that is printed is read off its tensors.
B texts of T tokens, D model width, H heads, E = D / H width of a head; in O(...), n is T and d is D.
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from headscope.attention import MultiHeadAttention
from headscope.attention.reference import PackedAttention
from headscope.errors import ConfigError
from headscope.heads.capture import now
from headscope.options import TraceConfig
from headscope.proof.copy_weights import carry

PLAIN_WIDTH = 110  # columns of a file or a pipe, which has no width of its own
EXAMPLE = {"batch": 1, "seq_len": 3, "d_model": 4, "num_heads": 2}


class Step(NamedTuple):
    """What theory says of a step: its formula, how many of its unit it takes, and how that grows."""

    name: str
    formula: str
    cost: str
    order: str
    unit: str = "multiply-adds"


STEPS = (
    Step("project to Q, K, V", "X W_in + b_in", "B·T·3D·D", "O(n·d²)"),
    Step("cut into Q, K, V", "D columns each", "0", "O(1)", "a view"),
    Step("split into heads", "Q_i, K_i, V_i: E columns each", "0", "O(1)", "a view"),
    Step("scores", "S_i = Q_i K_iᵀ", "B·H·T²·E", "O(n²·d)"),
    Step("scale", "S_i / √E", "B·H·T²", "O(n²)", "divisions"),
    Step("mask", "-inf where a key is padding", "B·H·T²", "O(n²)", "numbers set"),
    Step("softmax", "A_i = exp(S_i) / row sums", "B·H·T²", "O(n²)", "exponentials"),
    Step("weighted sum", "head_i = A_i V_i", "B·H·T²·E", "O(n²·d)"),
    Step("concatenate heads", "Concat(head_1, ..., head_H)", "0", "O(n·d)", "a copy"),
    Step("output projection", "Concat(...) W_O + b_O", "B·T·D·D", "O(n·d²)"),
)


def computation(
    layer: PackedAttention, X: Float[Tensor, "B T D"], hidden: Bool[Tensor, "B T"]
) -> Iterator[tuple[Tensor, ...]]:
    """Yield what each of STEPS makes; `hidden` is True at padding."""
    H, E = layer.num_heads, X.shape[-1] // layer.num_heads
    packed = layer.in_proj(X)  # [B, T, 3D]
    yield (packed,)
    Q, K, V = packed.chunk(3, dim=-1)  # each [B, T, D]
    yield Q, K, V
    Q, K, V = (
        part.unflatten(-1, (H, E)).transpose(1, 2) for part in (Q, K, V)
    )  # each [B, H, T, E]
    yield Q, K, V
    S = Q @ K.transpose(-2, -1)  # [B, H, T, T]
    yield (S,)
    S = S / math.sqrt(E)
    yield (S,)
    S = S.masked_fill(hidden[:, None, None], -math.inf)
    yield (S,)
    A = S.softmax(dim=-1)  # [B, H, T, T], each row sums to 1
    yield (A,)
    heads = A @ V  # [B, H, T, E]
    yield (heads,)
    joined = heads.transpose(1, 2).flatten(2)  # [B, T, D]
    yield (joined,)
    yield (layer.out_proj(joined),)  # [B, T, D]


class Row(NamedTuple):
    """A step as it was seen: how many tensors it made, their shape, the shape of one head's part, and the time."""

    step: Step
    tensors: int
    shape: tuple[int, ...]
    head: tuple[int, ...]
    seconds: float


@torch.no_grad()
def trace(
    layer: PackedAttention, X: Float[Tensor, "B T D"], hidden: Bool[Tensor, "B T"], repeats: int = 1
) -> tuple[list[Row], Float[Tensor, "B T D"]]:
    """Return every step as it was seen, and the output; times are the median of `repeats` passes after a first one."""
    E, times = X.shape[-1] // layer.num_heads, []
    for _ in range(repeats + 1):
        started, rows, times_now = now(X.device), [], []
        for step, made in zip(STEPS, computation(layer, X, hidden), strict=True):
            times_now.append(now(X.device) - started)
            one = made[0][:, 0] if made[0].dim() == 4 else made[0][..., :E]
            rows.append(Row(step, len(made), tuple(made[0].shape), tuple(one.shape), 0.0))
            output, started = made[0], now(X.device)
        times.append(times_now)
    typical = [median(column) for column in zip(*times[1:], strict=True)]
    return [row._replace(seconds=each) for row, each in zip(rows, typical, strict=True)], output


def symbols(layer: PackedAttention, X: Float[Tensor, "B T D"]) -> dict[str, int]:
    """Return what B, T, D, H and E stand for."""
    B, T, D = X.shape
    return {"B": B, "T": T, "D": D, "H": layer.num_heads, "E": D // layer.num_heads}


def value(formula: str, numbers: Mapping[str, int]) -> int:
    """Return the number that a cost such as B·T·3D·D or B·H·T² gives."""
    result = 1
    for factor in formula.split("·"):
        number, symbol, square = re.fullmatch(r"(\d*)([A-Z]?)(²?)", factor).groups()  # type: ignore[union-attr]
        result *= int(number or 1) * numbers.get(symbol, 1) ** (2 if square else 1)
    return result


@torch.no_grad()
def against_layer(
    layer: PackedAttention,
    X: Float[Tensor, "B T D"],
    hidden: Bool[Tensor, "B T"],
    output: Float[Tensor, "B T D"],
) -> tuple[float, float]:
    """Return the largest difference to MultiHeadAttention with the same weights, by its fused kernel, and its time."""
    bias = layer.out_proj.bias is not None
    ours = MultiHeadAttention(X.shape[-1], layer.num_heads, bias=bias, batch_first=True).to(X)
    carry(layer, ours)
    found, _ = ours(X, X, X, hidden, need_weights=False)
    started = now(X.device)
    ours(X, X, X, hidden, need_weights=False)
    return float((found - output).abs().max()), now(X.device) - started


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print the steps of multi-head attention at the given sizes and of a small example, or their growth.

    Args:
        config: sizes, type and device; with `grow`, the lengths.
        console: where to print; standard output by default.

    Raises:
        ConfigError: if there is no such device, or its memory is too small.
    """
    console, kind = console or _console(), getattr(torch, config.dtype)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes auto or cpu")
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    _check_memory(config, device)
    lengths = config.all_lengths if config.grow else [config.sizes["seq_len"]]
    made = [
        _made(config.sizes | {"seq_len": length}, config.bias, device, kind) for length in lengths
    ]
    traced = [trace(*each, config.repeats) for each in made]
    numbers = [symbols(layer, X) for layer, X, _ in made]
    place = f"{config.dtype} on {device.type}, torch {torch.__version__}"
    _say(
        console,
        f"{place}; times are the median of {config.repeats} passes; in O(), n is T and d is D",
    )
    if config.grow:
        console.print(_growth_table([rows for rows, _ in traced], numbers))
        _say(
            console,
            "with twice the tokens: projections twice the work, scores, softmax and weighted sum four times",
        )
        return
    console.print(_step_table(made[0][0], traced[0][0], numbers[0]))
    difference, seconds = against_layer(*made[0], traced[0][1])
    _say(
        console, f"MultiHeadAttention with the same weights, by its fused kernel: {_time(seconds)}"
    )
    _say(console, f"largest absolute difference between both outputs: {difference:.1e}")
    console.print(_example_table(*_made(EXAMPLE, config.bias, torch.device("cpu"), torch.float32)))


def _made(
    sizes: Mapping[str, int], bias: bool, device: torch.device, kind: torch.dtype
) -> tuple[PackedAttention, Tensor, Tensor]:
    """Return a layer, tokens, and the mask of padding in texts of 2/3 T to T tokens."""
    B, T, D, H = (sizes[name] for name in ("batch", "seq_len", "d_model", "num_heads"))
    torch.manual_seed(0)
    layer, lengths = (
        PackedAttention(D, H, bias).to(device, kind),
        torch.linspace((2 * T + 2) // 3, T, B).long(),
    )
    return (
        layer,
        torch.randn(B, T, D).to(device, kind),
        (torch.arange(T) >= lengths[:, None]).to(device),
    )


def _table(title: str, *headings: str, left: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", overflow="fold")
    return table


def _step_table(layer: PackedAttention, rows: list[Row], numbers: dict[str, int]) -> Table:
    D, E = numbers["D"], numbers["E"]
    title = "self-attention, " + ", ".join(
        f"{symbol}={number}" for symbol, number in numbers.items()
    )
    headings = ("step\nformula", "weights\nof one head", "all heads\none head", "count", "time")
    table = _table(title, *headings, left=3)
    table.add_row("input\nX", "", str((numbers["B"], numbers["T"], D)))
    weights = {
        "project to Q, K, V": f"({D}, {3 * D})\n3 × ({D}, {E})",
        "output projection": f"({D}, {D})\n({E}, {D})",
    }
    for step, tensors, shape, head, seconds in rows:
        all_heads, one_head = (
            f"{tensors} × {each}" if tensors > 1 else str(each) for each in (shape, head)
        )
        if step is STEPS[0]:
            one_head = f"3 × {head}"
        shapes = all_heads if step is STEPS[-1] else f"{all_heads}\n{one_head}"
        count = (
            f"{value(step.cost, numbers):,} {step.unit}\n{step.cost}"
            if step.cost != "0"
            else f"{step.unit}\n0"
        )
        table.add_row(f"{step.name}\n{step.formula}", weights.get(step.name, ""), shapes,
                      f"{count}, {step.order}", _time(seconds))  # fmt: skip
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    total = sum(
        value(step.cost, numbers) for step in STEPS if step.unit == Step._field_defaults["unit"]
    )
    table.add_section()
    table.add_row("total", f"{parameters:,}\nparameters", "", f"{total:,} multiply-adds",
                  _time(sum(row.seconds for row in rows)))  # fmt: skip
    return table


def _growth_table(traced: list[list[Row]], numbers: list[dict[str, int]]) -> Table:
    title = (
        ", ".join(f"{symbol}={numbers[0][symbol]}" for symbol in "BDHE")
        + ", count and time for texts of T tokens"
    )
    table = _table(title, "step", *(f"T={each['T']}" for each in numbers), "grows", left=1)
    for column in zip(*traced, strict=True):
        step = column[0].step
        cells = [f"{_count(value(step.cost, each))}\n{_time(row.seconds)}"
                 for row, each in zip(column, numbers, strict=True)]  # fmt: skip
        table.add_row(f"{step.name}\n({step.unit})", *cells, step.order)
    table.add_section()
    table.add_row("total time", *(_time(sum(row.seconds for row in rows)) for rows in traced))
    return table


@torch.no_grad()
def _example_table(layer: PackedAttention, X: Tensor, hidden: Tensor) -> Table:
    """Return every step of a small example with its numbers: heads side by side, Q, K and V below each other."""
    table = _table(
        "a small example, its last token padding",
        "step\nshape",
        "numbers, heads side by side",
        left=2,
    )
    for step, made in [
        (Step("input", "X", "0", ""), (X,)),
        *zip(STEPS, computation(layer, X, hidden), strict=True),
    ]:
        shape = (
            f"{len(made)} × {tuple(made[0].shape)}" if len(made) > 1 else str(tuple(made[0].shape))
        )
        table.add_row(
            f"{step.name}\n{shape}", "\n".join(map(_numbers, "QKV" if len(made) > 1 else " ", made))
        )
        table.add_section()
    return table


def _numbers(label: str, tensor: Tensor) -> str:
    """Return the first text of a tensor, one line for each token."""
    heads = tensor[0] if tensor.dim() == 4 else tensor  # [H, T, columns], or [1, T, columns]
    lines = [" │".join("".join(f"{number:6.2f}" for number in head) for head in token)
             for token in heads.transpose(0, 1).tolist()]  # fmt: skip
    return "\n".join(f"{label} {line}" for line in lines)


def _time(seconds: float) -> str:
    return _scaled(seconds * 1e6, {"s": 1e6, "ms": 1e3, "µs": 1.0})


def _count(count: int) -> str:
    return _scaled(float(count), {"G": 1e9, "M": 1e6, "k": 1e3}) if count >= 1000 else str(count)


def _scaled(amount: float, units: dict[str, float]) -> str:
    """Return three digits and the first unit that is not too large; the last is the smallest."""
    unit = next((unit for unit, size in units.items() if amount >= size), [*units][-1])
    return f"{amount / units[unit]:.3g} {unit}"


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)


def _check_memory(config: TraceConfig, device: torch.device) -> None:
    """Refuse what cannot fit, before the system ends the process."""
    B, T, D, H = (config.sizes[name] for name in ("batch", "seq_len", "d_model", "num_heads"))
    T = config.all_lengths[-1] if config.grow else T
    numbers = (
        3 * B * H * T**2 + 10 * B * T * D + 8 * D**2
    )  # three of scores; tokens, Q, K, V and copies; two layers
    needed = numbers * getattr(torch, config.dtype).itemsize
    if device.type == "cuda":
        there = int(torch.cuda.mem_get_info(device)[0])
    else:  # Windows does not say
        there = (
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if hasattr(os, "sysconf")
            else sys.maxsize
        )
    if needed > there:
        raise ConfigError(
            f"seq_len: {T} tokens in a batch of {B}, with d_model={D} and num_heads={H}, need about "
            f"{needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}; take fewer"
        )
