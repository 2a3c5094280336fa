"""suite=memory: the most memory that an epoch of training takes, ours beside the peers, each in its own process."""

import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.epochs import epoch
from headscope.benchmark.page import Table
from headscope.benchmark.process import finished, own_memory
from headscope.benchmark.timing import Timing
from headscope.benchmark.variants import BUCKETS, TORCH, Variant, variants
from headscope.benchmark.workload import bucketed, lognormal_lengths, sizes_of, texts_of
from headscope.data.batching import Batch

COLUMNS = (
    "encoder", "precision", "most, MiB", "of that: steps, MiB", "most, to torch's", "steps, to torch's", "spread",
)  # fmt: skip


def measure(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> list[Table]:
    """Return the table of memory: every encoder on the same buckets."""
    rows = [variant for variant in variants(config, device) if variant.batching == BUCKETS and not variant.compiled]
    wholes: dict[str, Timing] = {}
    steps: dict[str, Timing] = {}
    seen = [[_seen(variant, config, device, tell) for variant in rows] for _ in range(min(config.rounds, 3))]
    for variant, points in zip(rows, zip(*seen, strict=True), strict=True):
        wholes[variant.name] = Timing(tuple(peak for peak, _ in points))
        steps[variant.name] = Timing(tuple(peak - rest for peak, rest in points))
    lines = [_line(variant, rows, wholes, steps) for variant in rows]
    note = (
        f"An epoch of {config.texts} texts of lognormal lengths in buckets of {config.tokens_per_batch} places, "
        f"dropout 0.1 everywhere, AdamW, each in a process of its own; median of {min(config.rounds, 3)}. Most: of the "
        "whole process (on a GPU: of what torch allocated there). Steps: what training adds to a process that has "
        "imported everything, made the batches, weights and optimizer states."
    )
    target = "Target: at most 0.7 of torch's with the same buckets."
    return [Table("Memory in training", COLUMNS, lines, (note, target))]


def _line(
    variant: Variant, rows: Sequence[Variant], wholes: dict[str, Timing], steps: dict[str, Timing]
) -> tuple[str, ...]:
    peer = next((row.name for row in rows if row.encoder == TORCH and row.precision == variant.precision), None)

    def share(amounts: dict[str, Timing]) -> str:
        return "" if peer is None else f"{amounts[variant.name].ratio_to(amounts[peer]):.2f}x"

    name = variant.name
    return (
        variant.label,
        str(variant.precision).removeprefix("torch."),
        f"{wholes[name].median:.0f}",
        f"{steps[name].median:.0f}",
        share(wholes),
        share(steps),
        f"{wholes[name].spread:.0%}",
    )


def _seen(
    variant: Variant, config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]
) -> tuple[float, float]:
    """Return MiB at the peak and at rest of a process that trains an epoch."""
    tell(variant.name)
    asked = json.dumps({"name": variant.name, "device": device.type, "config": asdict(config)})
    child = finished(["-m", "headscope.benchmark.memory", asked])
    found = json.loads(child.output.strip().splitlines()[-1])
    return found["peak"], found["rest"]


def train_and_report(asked: str) -> None:
    """Be the process of one row: train an epoch and print the MiB at rest and at the peak."""
    request = json.loads(asked)
    config, device = BenchmarkConfig(**request["config"]), torch.device(request["device"])
    variant = next(row for row in variants(config, device) if row.name == request["name"])
    sizes = sizes_of(config)
    texts = texts_of(lognormal_lengths(config.texts, longest=config.max_length), sizes)
    batches = bucketed(texts, config.tokens_per_batch)
    work = epoch(lambda: variant.make(sizes, config.max_length), batches, variant.precision, device)
    tiny = min(work.batches, key=lambda batch: batch.token_ids.numel())
    work.step(Batch(tiny.token_ids[:1], None, None, tiny.labels[:1], tiny.rows[:1]))  # makes the optimizer's states
    gc.collect()
    rest = memory(device, "VmRSS")
    work()
    print(json.dumps({"rest": rest, "peak": memory(device, "VmHWM")}))


def memory(device: torch.device, field: str) -> float:
    """Return MiB of this process: VmRSS now, VmHWM at its peak; on a GPU what torch has, or had at most, there."""
    if device.type == "cuda":
        bytes_ = torch.cuda.max_memory_allocated() if field == "VmHWM" else torch.cuda.memory_allocated()
        return float(bytes_) / 2**20
    return own_memory(field)


if __name__ == "__main__":
    train_and_report(sys.argv[1])
