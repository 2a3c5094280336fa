"""The whole way of the data against the number of texts, which are made by repetition."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.growth_fit import exponents_column, sentence
from headscope.benchmark.growth_point import MIB, Measured, in_a_process
from headscope.benchmark.page import Table
from headscope.data.cache import cache_folder
from headscope.data.licenses import load_licenses

WORDS = 20  # of a repeated text: a million then take minutes, not hours
ROWS_AT_ONCE = 10_000
CLASSES = 2
POWERS = range(4)  # of ten, times config.texts
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYLLABLES = [first + second for first in LETTERS for second in LETTERS]
COLUMNS = (
    "texts", "seconds", "µs a text", "exponent", "peak, MiB", "above rest, MiB", "bytes of it a text", "exponent of it",
    "with mapped files, MiB", "on disk, MiB",
)  # fmt: skip
HOW = (
    f"Load, check, split, train the tokenizer, encode, and one pass of batches without training: texts of {WORDS} "
    "words and a number of their own, made by repetition. Each row is a process of its own. Peak: the process's own "
    "memory, looked at every 5 ms; with mapped files: most resident pages, of which those of mapped files go back "
    "whenever memory is wanted. On disk: what was made of the file, by `datasets` and by us.",
    "What grows with the texts is a few numbers for each (label, digest, group, place, length), and what the "
    "tokenizer's trainer counts if new words keep coming; texts stay on disk.",
)


def texts_table(config: BenchmarkConfig, tell: Callable[[str], object]) -> Table:
    """Measure 1, 10, 100 and 1,000 times config.texts."""
    seeds = beginnings(load_licenses(cache_folder(None))["text"][:])
    counts = [config.texts * 10**power for power in POWERS]
    found: list[Measured] = []
    disk: list[int] = []
    for count in counts:
        tell(f"{count:,} texts")
        with DataFolder(seeds, count) as folder:
            found.append(in_a_process(folder.work(config), folder.env))
            disk.append(folder.bytes_on_disk())
    return _table(counts, found, disk)


def _table(counts: Sequence[int], found: Sequence[Measured], disk: Sequence[int]) -> Table:
    seconds, own = [each.seconds for each in found], [each.above_rest_mib for each in found]
    columns = (
        [f"{count:,}" for count in counts],
        [f"{each:.3g}" for each in seconds],
        [f"{each / count * 1e6:,.0f}" for each, count in zip(seconds, counts, strict=True)],
        exponents_column(counts, seconds),
        [f"{each.peak_mib:.0f}" for each in found],
        [f"{each:.0f}" for each in own],
        [f"{each * MIB / count:,.0f}" for each, count in zip(own, counts, strict=True)],
        exponents_column(counts, own),
        [f"{each.resident_mib:.0f}" for each in found],
        [f"{size / MIB:.1f}" for size in disk],
    )
    notes = (
        sentence("Seconds", "texts", counts, seconds),
        sentence("Memory above rest", "texts", counts, own),
        sentence("Disk", "texts", counts, disk),
        *HOW,
    )
    return Table("The way of the data against the number of texts", COLUMNS, list(zip(*columns, strict=True)), notes)


def write_texts(path: Path, seeds: Sequence[str], count: int) -> None:
    """Write parquet with the columns text and label: the seeds over and over, each with its number in front.

    The number is spelled in words of two letters, of which there are 676: texts that differ in digits alone would be
    near-duplicates, and a word of its own in each text would be counted by the tokenizer's trainer.
    """
    schema = pa.schema({"text": pa.string(), "label": pa.int64()})
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, ROWS_AT_ONCE):
            numbers = range(start, min(count, start + ROWS_AT_ONCE))
            texts = [f"{spelled(number)} {seeds[number % len(seeds)]}" for number in numbers]
            writer.write_table(pa.table({"text": texts, "label": [number % CLASSES for number in numbers]}, schema))


def spelled(number: int) -> str:
    """Return a number in words of two letters, the digits of base 676, the lowest first."""
    words = [SYLLABLES[number % len(SYLLABLES)]]
    while number := number // len(SYLLABLES):
        words.append(SYLLABLES[number % len(SYLLABLES)])
    return " ".join(words)


def beginnings(texts: Sequence[str]) -> list[str]:
    """Return the first words of each text."""
    return [" ".join(text.split()[:WORDS]) for text in texts]


class DataFolder:
    """A temporary folder with a file of texts, and all that the way of the data leaves on disk.

    Args:
        seeds: texts to repeat.
        count: how many texts.
    """

    def __init__(self, seeds: Sequence[str], count: int) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="headscope-growth-")
        self.path = Path(self._temporary.name)
        self.file = self.path / "texts.parquet"
        write_texts(self.file, seeds, count)

    def __enter__(self) -> "DataFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def work(self, config: BenchmarkConfig) -> dict[str, Any]:
        """Return what growth_point is asked for."""
        return {
            "kind": "data",
            "path": str(self.file),
            "cache": str(self.path / "ours"),
            "max_length": config.max_length,
            "tokens_per_batch": max(config.tokens_per_batch, config.max_length),
        }

    @property
    def env(self) -> dict[str, str]:
        """Where `datasets` is to keep what it makes of the file."""
        return {"HF_DATASETS_CACHE": str(self.path / "theirs")}

    def bytes_on_disk(self) -> int:
        """Return the bytes of all that was made of the file."""
        made = (file.stat().st_size for file in self.path.rglob("*") if file.is_file())
        return sum(made) - self.file.stat().st_size
