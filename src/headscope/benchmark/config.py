"""The settings of scripts/benchmark.py. Free of torch, so that `--help` and mistakes are answered at once."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headscope.settings import setting

SUITES = ("train", "predict", "memory", "pipeline", "inspection", "startup", "scaling", "accuracy")
ROWS = ("tfidf", "fasttext", "scratch", "pretrained")  # of suite=accuracy


@dataclass
class BenchmarkConfig:
    """Measure speed, memory, growth and accuracy side by side with what a user would pick instead."""

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
    data_sets: list[str] = setting(
        ["licenses"], "accuracy: ready groups of configs/data, or whatever data.path of train.py takes"
    )
    rows: list[str] | None = setting(None, f"accuracy: of {', '.join(ROWS)}; null: all that can be had")
    seeds: int = setting(5, "accuracy: so many seeds, from 0 on, of every row that depends on one", minimum=1)
    checkpoint: str | None = setting(None, "accuracy: a folder or Hub id, fine-tuned as in experiment=minilm")
    train: list[str] = setting([], "accuracy: overrides for every training, such as train=[trainer.max_epochs=3]")
    variants: dict[str, list[str]] = setting(
        {}, "accuracy: further trainings by name, such as variants.smoothed=[optimizer.label_smoothing=0.1]"
    )
    jobs: int = setting(1, "accuracy: runs at a time, which share the threads", minimum=1)
    kept: str = setting("outputs/accuracy", "accuracy: where results are kept, and taken from instead of running again")
    same_code: bool = setting(
        True, "accuracy: take kept results of this very code alone; false takes any, and the page says so"
    )
    page: bool = setting(True, "write a page")
    page_name: str | None = setting(None, "name of the page; null: date, suite and device, or accuracy for that suite")
    title: str | None = setting(None, "heading of the page; null: suite, device and date")
    folder: str = setting("docs/benchmarks", "where the page is written")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        if self.d_model > 0 and self.num_heads > 0 and self.d_model % (2 * self.num_heads):
            yield "num_heads", f"got {self.num_heads}; d_model / num_heads must be even, for rotary positions"
        yield from self._conflicts_of_accuracy()
        if self.page_name is not None and not re.fullmatch(r"[\w.-]*\w", self.page_name):
            yield "page_name", f"got {self.page_name!r}, takes the name of a file in {self.folder}, without its ending"

    def _conflicts_of_accuracy(self) -> Iterator[tuple[str, str]]:
        if unknown := [row for row in self.rows or () if row not in ROWS]:
            yield "rows", f"got {', '.join(unknown)}, takes a list of {', '.join(ROWS)}"
        if self.checkpoint is None and "pretrained" in (self.rows or ()):
            yield "checkpoint", "is missing, for the row pretrained; give a folder or a Hub id"
        if self.rows == [] and not self.variants:
            yield "rows", "is empty, and there are no variants; takes at least one row"
        if not self.data_sets:
            yield "data_sets", "is empty; takes at least one"
        for name in self.variants:
            if name in ROWS or not re.fullmatch(r"\w[\w-]*", name):
                yield "variants", f"got the name {name!r}, takes letters, digits, _ and -, and no row's name"
