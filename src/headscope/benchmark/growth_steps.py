"""A training step against the length of a text, the width of the encoder, and the number of its layers."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.growth_fit import exponents_column, sentence
from headscope.benchmark.growth_point import Measured, in_a_process
from headscope.benchmark.page import Table
from headscope.benchmark.workload import Sizes, sizes_of

Tell = Callable[[str], object]
COLUMNS = (
    "texts a step", "seconds a text", "exponent", "by counting", "peak, MiB", "of the step, MiB", "exponent of it",
)  # fmt: skip
LAYERS_WHY = (
    "By counting, layers cost alike, so the exponent is 1; what is there once (embedding, loss, AdamW's pass over the "
    "vocabulary's vectors) takes the measured one below 1 where layers are few."
)


@dataclass(frozen=True)
class Point:
    """A training step of one size.

    Attributes:
        size: what is varied.
        length: tokens of a text.
        texts: of the batch.
        sizes: of the encoder.
    """

    size: int
    length: int
    texts: int
    sizes: Sizes

    @property
    def operations(self) -> float:
        """Floating-point operations of a text, counted."""
        return float(self.sizes.operations(np.array([self.length]), training=True))


def length_table(config: BenchmarkConfig, device: torch.device, tell: Tell) -> Table:
    """Measure from 1/4 to 16 times max_length, with as many texts as fit into tokens_per_batch, at least one."""
    points = [
        Point(length, length, max(1, config.tokens_per_batch // length), sizes_of(config))
        for length in _doubled(config.max_length // 4, 16 * config.max_length)
    ]
    why = (
        "Why time bends: a layer multiplies each token with 12 D^2 weights, and with each token of its text in 2 D "
        f"multiply-adds, so 12 D^2 + 2 n D a token; the two are equal, and the exponent is 1.5, at n = 6 D = "
        f"{6 * config.d_model:,}. A step has as many tokens at every length, until one text is more than that, so its "
        "memory grows only there, or with what the attention keeps of its n x n weights."
    )
    return _table("length", points, config, device, tell, why)


def width_table(config: BenchmarkConfig, device: torch.device, tell: Tell) -> Table:
    """Measure from 1/4 to 4 times d_model, where heads have an even width, which rotary positions need."""
    sizes, widths = sizes_of(config), _doubled(config.d_model // 4, 4 * config.d_model)
    points = [
        Point(width, config.max_length, _texts(config), replace(sizes, d_model=width, feedforward_size=4 * width))
        for width in widths
        if width % (2 * config.num_heads) == 0
    ]
    why = (
        "Why it bends: of 12 D^2 + 2 n D multiply-adds a token and layer most are square in D above D = n / 6 = "
        f"{config.max_length / 6:.0f}, and narrow products use less of the machine. A weight with its gradient and "
        "AdamW's two moments takes 16 bytes; weights grow with D^2 where activations grow with D."
    )
    return _table("width", points, config, device, tell, why)


def layers_table(config: BenchmarkConfig, device: torch.device, tell: Tell) -> Table:
    """Measure from 1 to 4 times num_layers."""
    points = [
        Point(layers, config.max_length, _texts(config), replace(sizes_of(config), num_layers=layers))
        for layers in _doubled(1, 4 * config.num_layers)
    ]
    return _table("layers", points, config, device, tell, LAYERS_WHY)


def _texts(config: BenchmarkConfig) -> int:
    return max(1, config.tokens_per_batch // config.max_length)


def _doubled(first: int, last: int) -> list[int]:
    """Return first, 2 first, 4 first ... as long as they are at most `last`."""
    first = max(1, first)
    return [first * 2**power for power in range((last // first).bit_length())]


def _table(
    what: str, points: Sequence[Point], config: BenchmarkConfig, device: torch.device, tell: Tell, why: str
) -> Table:
    found = [_measured(what, point, config, device, tell) for point in points]
    sizes, counted = [point.size for point in points], [point.operations for point in points]
    seconds = [each.seconds / point.texts for each, point in zip(found, points, strict=True)]
    own = [each.above_rest_mib for each in found]
    columns = (
        [f"{size:,}" for size in sizes],
        [str(point.texts) for point in points],
        [f"{each:.3g}" for each in seconds],
        exponents_column(sizes, seconds),
        exponents_column(sizes, counted),
        [f"{each.peak_mib:.0f}" for each in found],
        [f"{each:.0f}" for each in own],
        exponents_column(sizes, own),
    )
    notes = (
        sentence("Seconds", what, sizes, seconds),
        sentence("Operations, by counting,", what, sizes, counted),
        sentence("Memory of the step", what, sizes, own),
        why,
        _how(config),
    )
    return Table(f"A training step against {what}", (what, *COLUMNS), list(zip(*columns, strict=True)), notes)


def _measured(what: str, point: Point, config: BenchmarkConfig, device: torch.device, tell: Tell) -> Measured:
    tell(f"{what} {point.size:,}")
    return in_a_process(
        {
            "kind": "training",
            "length": point.length,
            "texts": point.texts,
            "sizes": asdict(point.sizes),
            "rounds": config.rounds,
            "device": str(device),
        }
    )


def _how(config: BenchmarkConfig) -> str:
    return (
        f"Where not varied: texts of {config.max_length} tokens, width {config.d_model}, {config.num_layers} layers, "
        f"{config.num_heads} heads; {config.tokens_per_batch:,} tokens a step, but at least one text; float32, fused "
        f"AdamW, no dropout on attention weights. Each row is a process of its own, the fastest of {config.rounds} "
        "steps after one unseen. An exponent is that since the row before; memory of the step is the peak without what "
        "was there before."
    )
