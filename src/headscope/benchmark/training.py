"""suite=train: an epoch of training, our encoder beside torch's and Hugging Face's, and the attention layer alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.default_data import default_lengths
from headscope.benchmark.epochs import epoch
from headscope.benchmark.layer import layer_table
from headscope.benchmark.machine import ceiling
from headscope.benchmark.operators import operator_table
from headscope.benchmark.page import Table
from headscope.benchmark.peers import ours_by_default
from headscope.benchmark.timing import Timing, in_turn
from headscope.benchmark.variants import BUCKETS, PADDED, TORCH, Variant, main_variants, precisions, short, variants
from headscope.benchmark.workload import Sizes, bucketed, lognormal_lengths, shuffled, sizes_of, texts_of
from headscope.data.batching import Batch

COLUMNS = (
    "encoder", "batches", "precision", "µs a token", "tokens a second", "to torch's, padded",
    "to the best peer in buckets", "useful GFLOP/s", "of the ceiling", "spread",
)  # fmt: skip


def measure(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> list[Table]:
    """Return the tables of training: made lengths, the default data's lengths, the layer, and where time goes."""
    sizes = sizes_of(config)
    drawn = lognormal_lengths(config.texts, longest=config.max_length)
    found = default_lengths(config.texts, config.max_length)
    rows, title = variants(config, device), "lognormal lengths, median 60, sigma 0.7"
    make = ours_by_default
    return [
        _epochs(config, device, sizes, drawn, rows, title, tell),
        _epochs(config, device, sizes, found, main_variants(rows), "lengths of the default data", tell),
        layer_table(config, device, tell),
        *(operator_table(make, sizes, drawn, config, device, each) for each in precisions(device)),
    ]


def _epochs(
    config: BenchmarkConfig,
    device: torch.device,
    sizes: Sizes,
    lengths: np.ndarray,
    chosen: Sequence[Variant],
    which: str,
    tell: Callable[[str], object],
) -> Table:
    texts = texts_of(lengths, sizes)
    batches = {
        PADDED: shuffled(texts, config.texts_per_batch),
        BUCKETS: bucketed(texts, config.tokens_per_batch),
    }
    works = {
        variant.name: epoch(
            partial(variant.make, sizes, config.max_length),
            batches[variant.batching],
            variant.precision,
            device,
            variant.compiled,
        )
        for variant in chosen
    }
    timings = in_turn(works, config.rounds, device, tell)
    ceilings = {precision: ceiling(precision, device) for precision in precisions(device)}
    rows = _rows(chosen, timings, lengths, sizes.operations(lengths, training=True), ceilings)
    title = f"Training, whole epochs: {which}"
    return Table(title, COLUMNS, rows, _notes(config, sizes, lengths, batches, ceilings))


def _rows(
    chosen: Sequence[Variant],
    timings: Mapping[str, Timing],
    lengths: np.ndarray,
    operations: int,
    ceilings: Mapping[torch.dtype, float],
) -> list[tuple[str, ...]]:
    tokens = int(lengths.sum())
    plain = next((timings[v.name] for v in chosen if v.encoder == TORCH and v.batching == PADDED), None)
    rows: list[tuple[str, ...]] = []
    for variant in chosen:
        taken = timings[variant.name]
        rivals = [v for v in chosen if v.is_peer and v.batching == BUCKETS and v.precision == variant.precision]
        best = min((timings[rival.name] for rival in rivals), key=lambda timing: timing.median, default=None)
        useful = operations / taken.median
        rows.append(
            (
                variant.label,
                variant.batching,
                short(variant.precision),
                f"{taken.median / tokens * 1e6:.0f}",
                f"{tokens / taken.median:,.0f}",
                _times(plain, taken),
                _times(best, taken),
                f"{useful / 1e9:.0f}",
                f"{useful / ceilings[variant.precision]:.0%}",
                f"{taken.spread:.0%}",
            )
        )
    return rows


def _times(other: Timing | None, mine: Timing) -> str:
    """Return how many times as fast as the other, round by round."""
    return "" if other is None else f"{other.ratio_to(mine):.2f}x"


def _notes(
    config: BenchmarkConfig,
    sizes: Sizes,
    lengths: np.ndarray,
    batches: Mapping[str, Sequence[Batch]],
    ceilings: Mapping[torch.dtype, float],
) -> tuple[str, ...]:
    places = {name: sum(batch.token_ids.numel() for batch in made) for name, made in batches.items()}
    padding = ", ".join(f"{name} {1 - lengths.sum() / count:.0%}" for name, count in places.items())
    products = ", ".join(f"{short(precision)} {rate / 1e9:.0f} GFLOP/s" for precision, rate in ceilings.items())
    return (
        f"Width {sizes.d_model}, {sizes.num_layers} layers, {sizes.num_heads} heads, feed-forward "
        f"{sizes.feedforward_size}; {len(lengths)} texts, {int(lengths.sum()):,} tokens; dropout 0.1 everywhere, fused "
        f"AdamW; median of {config.rounds} rounds in turn after one unseen; a token is a real one, padding is not "
        f"counted. Batches: {config.texts_per_batch} texts padded to the longest, or at most {config.tokens_per_batch} "
        f"places of texts of like length. Places that are padding: {padding}.",
        f"Ceiling, a 2048 x 2048 x 2048 product: {products}. Ours turns queries and keys (rotary positions), the peers "
        "add learned positions. Batches are made before the clock starts; what that costs stands in suite=pipeline.",
    )
