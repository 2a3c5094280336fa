"""Where the time of a training step goes, operator by operator."""

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.epochs import epoch
from headscope.benchmark.page import Table
from headscope.benchmark.peers import Maker
from headscope.benchmark.workload import Sizes, bucketed, texts_of

SHOWN, STEPS = 14, 6


def operator_table(
    make: Maker,
    sizes: Sizes,
    lengths: np.ndarray,
    config: BenchmarkConfig,
    device: torch.device,
    precision: torch.dtype,
) -> Table:
    """Return the operators that take most of some training steps, and their shares."""
    batches = bucketed(texts_of(lengths, sizes), config.tokens_per_batch)[:STEPS]
    work = epoch(lambda: make(sizes, config.max_length), batches, precision, device)
    work()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as seen:
        work()
    title = f"Where a step's time goes: headscope as it comes, {str(precision).removeprefix('torch.')}"
    # An operator has its kernels' time already; as events of their own they would be counted twice.
    operators = [event for event in seen.key_averages() if event.device_type.name == "CPU"]
    times = [(event.key, _own_time(event, device), event.count) for event in operators]
    columns = ("operator", "share", "ms a step", "calls a step")
    return Table(title, columns, _rows(times, len(batches)), (f"{len(batches)} steps, by torch.profiler.",))


def _rows(times: list[tuple[str, float, int]], steps: int) -> list[tuple[str, ...]]:
    everything = sum(time for _, time, _ in times)
    top = sorted(times, key=lambda row: -row[1])[:SHOWN]
    rows: list[tuple[str, ...]] = [
        (name, f"{time / everything:.1%}", f"{time / 1e3 / steps:.1f}", f"{count / steps:.0f}")
        for name, time, count in top
    ]
    return [*rows, ("all others", f"{1 - sum(time for _, time, _ in top) / everything:.1%}", "", "")]


def _own_time(event: object, device: torch.device) -> float:
    """Return microseconds in the operator itself, not in those that it calls."""
    name = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    return float(getattr(event, name))
