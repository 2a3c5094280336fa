"""The settings of scripts/benchmark.py. Free of torch, so that `--help` and mistakes are answered at once."""

from collections.abc import Iterator
from dataclasses import dataclass

from headscope.settings import setting

SUITES = ("train", "predict", "memory", "pipeline", "inspection", "startup", "scaling")


@dataclass
class BenchmarkConfig:
    """Measure speed, memory and growth side by side with what a user would pick instead."""

    suite: str = setting("???", "what to measure", choices=SUITES)
    device: str = setting("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    rounds: int = setting(5, "how often each variant is timed, in turn; medians are shown", minimum=1)
    texts: int = setting(1000, "made texts of an epoch; data suites make ten or a hundred times as many", minimum=10)
    d_model: int = setting(256, "width of the encoders", minimum=1)
    num_heads: int = setting(8, "heads of the encoders", minimum=1)
    num_layers: int = setting(4, "layers of the encoders", minimum=1)
    max_length: int = setting(256, "longest text in tokens", minimum=4)
    tokens_per_batch: int = setting(4096, "positions of a bucketed batch, padding included", minimum=256)
    texts_per_batch: int = setting(32, "texts of a batch that is padded to its longest", minimum=1)
    peers: bool = setting(True, "measure torch's and Hugging Face's encoders beside ours")
    page: bool = setting(True, "write a dated page")
    folder: str = setting("docs/benchmarks", "where the page is written")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        if self.d_model > 0 and self.num_heads > 0 and self.d_model % (2 * self.num_heads):
            yield "num_heads", f"got {self.num_heads}; d_model / num_heads must be even, for rotary positions"
