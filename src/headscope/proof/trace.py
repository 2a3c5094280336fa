"""trace_attention(config): self-attention step by step, with shapes, values, cost and time.

    headscope trace seed=55 batch=1 seq_len=5 d_model=4 num_heads=2 bias=false mask=none

has the numbers of the published example (`headscope.proof.verify`): the tokens are drawn first,
then the layer, as torch.nn.MultiheadAttention draws it.

`steps` is the textbook's computation; all that is printed is read off its tensors. B texts of T
tokens, D model width, H heads, E = D / H width of a head; in O(...), n is T and d is D.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from rich import box
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor, nn

from headscope.attention.functional import causal_mask
from headscope.attention.reference import PackedAttention, mask_of_heads
from headscope.ground.errors import ConfigError
from headscope.heads.capture import now
from headscope.proof.copy_weights import read_weights, write_weights
from headscope.proof.language import Translate, Wrapped, translation
from headscope.settings.commands import TraceConfig

SHOWN = 5  # numbers of a row
PIPE_WIDTH = 150  # columns where the output is a file or a pipe
WIDE = 120  # columns from which a step is one line


class Step(NamedTuple):
    """A step: its formula, the multiply-adds that it takes, how they grow, and what it makes."""

    name: str
    formula: str
    multiply_adds: int
    order: str
    made: tuple[Tensor, ...]


def steps(
    layer: PackedAttention, X: Float[Tensor, "B T D"], mask: Bool[Tensor, "#B #T T"] | None = None
) -> Iterator[Step]:
    """Yield each step once it is computed; `mask` is True where a query must not see a key."""
    B, T, D = X.shape
    H = layer.num_heads
    E = D // H
    b_in, b_O = ("", "") if layer.in_proj.bias is None else (" + b_in", " + b_O")
    packed = layer.in_proj(X)  # [B, T, 3D]
    yield Step("project to Q, K, V", f"X W_in{b_in}", B * T * 3 * D * D, "O(n·d²)", (packed,))
    parts = packed.chunk(3, dim=-1)  # three of [B, T, D]
    yield Step("cut into Q, K, V", "D columns each", 0, "O(1)", parts)
    Q, K, V = (part.unflatten(-1, (H, E)).transpose(1, 2) for part in parts)  # [B, H, T, E]
    yield Step("split into heads", "Q_i, K_i, V_i: E columns each", 0, "O(1)", (Q, K, V))
    S = Q @ K.transpose(-2, -1)  # [B, H, T, T]
    yield Step("scores", "S_i = Q_i K_iᵀ", B * H * T * T * E, "O(n²·d)", (S,))
    S = S / math.sqrt(E)
    yield Step("scale", "S_i / √E", 0, "O(n²)", (S,))
    if mask is not None:
        S = S.masked_fill(mask_of_heads(mask, B, H, T, T), -math.inf)
        yield Step("mask", "-inf where a key is hidden", 0, "O(n²)", (S,))
    A = S.softmax(dim=-1)  # [B, H, T, T], each row sums to 1
    yield Step("softmax", "A_i = exp(S_i) / row sums", 0, "O(n²)", (A,))
    heads = A @ V  # [B, H, T, E]
    yield Step("weighted sum", "head_i = A_i V_i", B * H * T * T * E, "O(n²·d)", (heads,))
    merged = heads.transpose(1, 2).flatten(2)  # [B, T, D]
    yield Step("concatenate heads", "Concat(head_1, ..., head_H)", 0, "O(n·d)", (merged,))
    output = layer.out_proj(merged)  # [B, T, D]
    yield Step("output projection", f"Concat(...) W_O{b_O}", B * T * D * D, "O(n·d²)", (output,))


@torch.no_grad()
def trace(
    layer: PackedAttention, X: Tensor, mask: Tensor | None = None, repeats: int = 1
) -> tuple[list[Step], list[float]]:
    """Return the steps, and the seconds of each: the median of `repeats` passes after one."""
    passes = []
    for _ in range(repeats + 1):
        done = []
        times = [now(X.device)]
        for step in steps(layer, X, mask):
            done.append(step)
            times.append(now(X.device))
        passes.append(np.diff(times))
    return done, np.median(passes[1:], axis=0).tolist()


def values(tensor: Tensor) -> str:
    """Return the numbers of the first text's first token in its first head; of many the ends."""
    row = tensor.flatten(0, -2)[0].tolist()
    ends = [f"{number:.4f}" for number in (row if len(row) <= SHOWN else row[:3])]
    return " ".join(ends if len(row) <= SHOWN else [*ends, "...", f"{row[-1]:.4f}"])


def drawn(config: TraceConfig) -> tuple[PackedAttention, Float[Tensor, "B T D"]]:
    """Return the layer and its input: drawn from the seed, or the layer of `weights`.

    Raises:
        ConfigError: if the file has no such layer, or num_heads does not divide its width.
    """
    weights = None if config.weights is None else read_layer(config.weights)
    D = config.d_model if weights is None else weights["in_proj_weight"].shape[1]
    if D % config.num_heads:
        raise ConfigError(f"num_heads: expected a divisor of {D}, got {config.num_heads}")
    torch.manual_seed(config.seed)
    X = torch.randn(config.batch, config.seq_len, D)
    if weights is None:
        weights = read_weights(nn.MultiheadAttention(D, config.num_heads, bias=config.bias))
    layer = PackedAttention(D, config.num_heads, "in_proj_bias" in weights)
    write_weights(layer, weights)
    return layer, X


def read_layer(path: str) -> dict[str, Tensor]:
    """Return the state dict of a torch.nn.MultiheadAttention that torch or safetensors saved.

    Nothing but tensors is read from it. ConfigError if it is another file.
    """
    try:
        if Path(path).suffix == ".safetensors":
            state: dict[str, Tensor] = load_file(path)
        else:
            state = torch.load(path, "cpu", weights_only=True)
        D = state["in_proj_weight"].shape[1]
        layer = nn.MultiheadAttention(D, 1, bias="in_proj_bias" in state, device="meta")
        layer.load_state_dict(state, assign=True)  # shapes are compared, nothing is allocated
    except Exception as error:  # zip, pickle, Rust and wrong shapes each raise their own
        got = str(error) if isinstance(error, OSError) else "another file"
        raise ConfigError(
            f"weights={path}: expected a state dict of torch.nn.MultiheadAttention, got {got}; "
            "write one with torch.save(layer.state_dict(), path)"
        ) from error
    return read_weights(layer)


def hidden(config: TraceConfig) -> Bool[Tensor, "#B #T T"] | None:
    """Return the mask: of texts of several lengths the padding, or of each query later keys."""
    T = config.seq_len
    if config.mask == "padding":
        lengths = torch.linspace((2 * T + 2) // 3, T, config.batch).long()
        return torch.arange(T) >= lengths[:, None, None]  # [B, 1, T]
    return causal_mask(T, T)[0] if config.mask == "causal" else None  # [1, T, T]


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print the steps of multi-head attention: shapes, values, multiply-adds and time.

    Raises:
        ConfigError: if there is no such device, or no layer in `weights`.
    """
    if console is None:
        console = Console()
        if not (console.is_terminal or "COLUMNS" in os.environ):
            console = Console(width=PIPE_WIDTH)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: expected auto or cpu, got cuda; torch finds no CUDA GPU here")
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    dtype: torch.dtype = getattr(torch, config.dtype)
    layer, X = drawn(config)
    mask = hidden(config)
    layer.to(device, dtype)
    X = X.to(device, dtype)
    done, seconds = trace(layer, X, None if mask is None else mask.to(device), config.repeats)
    B, T, D = X.shape
    H = config.num_heads
    say = translation(config.lang)
    title = f"{say('self-attention')}, B={B}, T={T}, D={D}, H={H}, E={D // H}"
    console.print(Wrapped(title), _table(X, done, seconds, say, console.width < WIDE))
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    parts = [
        say(f"{parameters:,} parameters"),
        say(f"{config.dtype} on {device.type}"),
        f"torch {torch.__version__}",
        say(f"times are the median of {config.repeats} passes"),
        say("in O() n is T and d is D"),
    ]
    console.print(Wrapped("; ".join(parts)))


def _table(
    X: Tensor, done: list[Step], seconds: list[float], say: Translate, is_narrow: bool
) -> Table:
    """Return a row a step; a narrow table has its formula and values in a line of their own."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)

    def cells(*four: str) -> list[Wrapped]:
        pairs = [f"{four[0]}\n{four[1]}", f"{four[2]}\n{four[3]}"]
        return [*map(Wrapped, pairs if is_narrow else four)]

    for heading in cells(*map(say, ("step", "formula", "shape", "first token, first head"))):
        table.add_column(heading)
    for words in ("multiply-adds", "grows", "ms"):
        table.add_column(Wrapped(say(words)), justify="right", no_wrap=True)
    table.add_row(*cells(say("input"), "X", str(tuple(X.shape)), values(X)))
    for step, time in zip(done, seconds, strict=True):
        times = f"{len(step.made)} × " if len(step.made) > 1 else ""
        shape = f"{times}{tuple(step.made[0].shape)}"
        cost = f"{step.multiply_adds:,}" if step.multiply_adds else ""
        shown = values(step.made[0])
        own = cells(say(step.name), say(step.formula), shape, shown)
        table.add_row(*own, cost, step.order, f"{1e3 * time:.3g}")
    table.add_section()
    total = sum(step.multiply_adds for step in done)
    table.add_row(*cells(say("total"), "", "", ""), f"{total:,}", "", f"{1e3 * sum(seconds):.3g}")
    return table
