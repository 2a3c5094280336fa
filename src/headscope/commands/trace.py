"""trace_attention(config): the computation of multi-head attention as a table of steps, or how each step grows."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headscope.attention.reference import PackedAttention
from headscope.commands.config import TraceConfig
from headscope.commands.trace_tables import growth_notes, growth_tables, seconds_in_words, step_notes, step_table
from headscope.errors import ConfigError
from headscope.tracing.cost import sizes
from headscope.tracing.growth import grow
from headscope.tracing.steps import Trace, against_layer, trace

PLAIN_WIDTH = 200  # columns of a file or a pipe, which has no width of its own


def trace_attention(config: TraceConfig, console: Console | None = None) -> None:
    """Print what multi-head attention computes, as it was observed while it ran.

    Args:
        config: sizes, type and device; with `grow`, the lengths.
        console: where to print; standard output by default.

    Raises:
        ConfigError: if there is no such device, or its memory is too small.
    """
    console, device = console or _console(), _device(config.device)
    _check_memory(config, device)
    torch.manual_seed(0)
    layer = PackedAttention(config.sizes["d_model"], config.sizes["num_heads"], config.bias)
    layer.to(device, getattr(torch, config.dtype))
    (_show_growth if config.grow else _show_steps)(console, config, layer)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _check_memory(config: TraceConfig, device: torch.device) -> None:
    """Refuse what cannot fit, instead of being ended by the system in the middle."""
    B, T, D, H = (config.sizes[name] for name in ("batch", "seq_len", "d_model", "num_heads"))
    T = config.lengths[-1] if config.grow else T
    numbers = 2 * B * H * T**2 + 10 * B * T * D + 8 * D**2  # scores twice; tokens, Q, K, V and copies; two layers
    needed, there = numbers * getattr(torch, config.dtype).itemsize, _memory(device)
    if needed > there:
        raise ConfigError(
            f"{'lengths' if config.grow else 'seq_len'}: {T} tokens in a batch of {B}, with d_model={D} and "
            f"num_heads={H}, need about {needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}"
        )


def _memory(device: torch.device) -> int:
    """Return the bytes that are free on a GPU, or that the machine has in all."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if not hasattr(os, "sysconf"):  # Windows does not say
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar with the time left while passes run, and yield what moves it. Without a terminal there is none."""
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("passed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("tracing", total=total)
        yield lambda words, amount: bar.update(task, description=words, advance=amount)


def _print_lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _show_steps(console: Console, config: TraceConfig, layer: PackedAttention) -> None:
    size, weight = config.sizes, layer.out_proj.weight
    tokens = torch.randn(size["batch"], size["seq_len"], size["d_model"]).to(weight)  # [B, T, D]
    with _progress(console, config.repeats + 1) as advance:
        seen = trace(layer, tokens, config.repeats, lambda: advance("tracing", 1))
        difference, seconds = against_layer(layer, tokens, seen.output, config.repeats)
    _print_lines(console, [_heading(seen, config, weight.device)])
    console.print(step_table(seen, console.width))
    _print_lines(console, step_notes(seen))
    layers = (
        f"headscope.attention.MultiHeadAttention with the same weights: {seconds_in_words(seconds)} by its fused kernel"
    )
    _print_lines(console, [f"{layers}, same output, largest absolute difference {difference:.1e}"])


def _heading(seen: Trace, config: TraceConfig, device: torch.device) -> str:
    symbols = ", ".join(f"{symbol}={number}" for symbol, number in sizes(seen.steps).items())
    return (
        f"self-attention of B texts of T tokens, width D, H heads of width E: {symbols}\n{_where(config, device)}; "
        f"shapes, parameters, bytes and times (median of {config.repeats} passes) as seen while it ran, "
        "counts of multiply-adds from these shapes"
    )


def _where(config: TraceConfig, device: torch.device) -> str:
    threads = f" (threads: {torch.get_num_threads()})" if device.type == "cpu" else ""
    return f"{config.dtype} on {device.type}{threads}, torch {torch.__version__}"


def _show_growth(console: Console, config: TraceConfig, layer: PackedAttention) -> None:
    size, weight = config.sizes, layer.out_proj.weight
    # The bar moves by n² at each pass, as most of the time does, so that the time left is about right.
    with _progress(console, (config.repeats + 1) * sum(length**2 for length in config.lengths)) as advance:
        growth = grow(layer, size["batch"], config.lengths, config.repeats,
                      lambda length: advance(f"{length} tokens", length**2))  # fmt: skip
    sizes_in_words = f"batch={size['batch']} d_model={size['d_model']} num_heads={size['num_heads']}"
    _print_lines(console, [f"growth with n, the tokens of a text: {sizes_in_words}\n{_where(config, weight.device)}; "
                           f"times are the median of {config.repeats} passes"])  # fmt: skip
    for table in growth_tables(growth):
        console.print(table)
    _print_lines(console, growth_notes(growth, size["d_model"]))
