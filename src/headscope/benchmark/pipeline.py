"""Data on its way to the network: texts to token ids, and how long training waits for its batches."""

import dataclasses
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars, enable_progress_bars, is_progress_bar_enabled
from tokenizers import Tokenizer

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.epochs import epoch
from headscope.benchmark.page import Table
from headscope.benchmark.peers import ours_by_default
from headscope.benchmark.timing import Timing, in_turn
from headscope.benchmark.workload import Sizes, lognormal_lengths, sizes_of, texts_of
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler, moved
from headscope.data.cache import cache_folder
from headscope.data.config import TokenizerConfig
from headscope.data.encoded import encode
from headscope.data.licenses import load_licenses
from headscope.data.tokenizer import trained_tokenizer

TEXTS_OF_A_CORPUS = 100  # times config.texts
RATE_WANTED = 0.85  # of encode_batch alone
SECONDS_WANTED = 1.0  # from the cache, for so many texts:
TEXTS_WANTED = 100_000
SHARE_WANTED = 0.02  # of the time of the training steps
YARDSTICK, FAST, FIRST, AGAIN, MAP = (
    "tokenizers: encode_batch",
    "tokenizers: encode_batch_fast",
    "headscope, first time",
    "headscope, from the cache",
    "datasets: map(encode_batch_fast)",
)
BUILDING, TRAINING = "building the batches", "training steps on them"
Tell = Callable[[str], object]


def measure(config: BenchmarkConfig, device: torch.device, tell: Tell) -> list[Table]:
    """Time texts on their way to ids, first and second time, and an epoch's batches beside their training steps."""
    with tempfile.TemporaryDirectory() as folder:
        return [_to_ids(config, Path(folder), tell), _waiting(config, device, Path(folder), tell)]


def _to_ids(config: BenchmarkConfig, folder: Path, tell: Tell) -> Table:
    tell("making the texts, training the tokenizer")
    seeds = load_licenses(cache_folder(None))["text"][:]
    tokenizer = trained_tokenizer(seeds, TokenizerConfig(), config.max_length, folder)
    # Shuffled, because a split is rows picked from a source, which are slower to read than rows in their order.
    dataset = _numbered(seeds, TEXTS_OF_A_CORPUS * config.texts).shuffle(seed=0)
    texts = dataset["text"][:]
    variants = _variants(tokenizer, dataset, texts, folder)
    if not config.peers:
        del variants[MAP]
    shown = is_progress_bar_enabled()
    disable_progress_bars()
    try:
        timings = in_turn(variants, config.rounds, tell=tell)
    finally:
        if shown:
            enable_progress_bars()
    return _table_of_ids(timings, len(texts), sum(len(text.encode()) for text in texts) / 1e6)


def _numbered(seeds: list[str], size: int) -> Dataset:
    return Dataset.from_dict({"text": [f"{number} {seeds[number % len(seeds)]}" for number in range(size)]})


def _variants(
    tokenizer: Tokenizer, dataset: Dataset, texts: list[str], folder: Path
) -> dict[str, Callable[[], object]]:
    encode(tokenizer, dataset, folder / "again")
    number = count()
    return {
        YARDSTICK: lambda: tokenizer.encode_batch(texts),
        FAST: lambda: tokenizer.encode_batch_fast(texts),
        FIRST: lambda: encode(tokenizer, dataset, folder / f"first {next(number)}"),
        AGAIN: lambda: encode(tokenizer, dataset, folder / "again"),
        MAP: lambda: dataset.map(
            lambda rows: {"ids": [encoding.ids for encoding in tokenizer.encode_batch_fast(rows["text"])]},
            batched=True,
            remove_columns="text",
            cache_file_name=str(folder / f"map {next(number)}.arrow"),
            new_fingerprint=str(next(number)),
        ),
    }


def _table_of_ids(timings: dict[str, Timing], num_texts: int, megabytes: float) -> Table:
    rates = {name: timings[YARDSTICK].ratio_to(timing) for name, timing in timings.items()}
    rows = [
        (
            name,
            f"{timing.median:.3g}",
            f"{timing.median / num_texts * 1e6:.3g}",
            f"{megabytes / timing.median:.3g}",
            f"{rates[name]:.2f}",
            f"{timing.spread:.0%}",
        )
        for name, timing in timings.items()
    ]
    again = timings[AGAIN].median * TEXTS_WANTED / num_texts
    notes = (
        f"{num_texts:,} texts, {megabytes:.1f} MB: the embedded licence texts over and over, each with a number of its "
        "own in front, so that no two are alike but most words are; shuffled. Byte-level BPE of 4,000 pieces.",
        "Rate: the median, over rounds, of encode_batch's seconds / the variant's in the same round. Whatever is kept "
        "is written to disk; encode_batch and encode_batch_fast leave what they made in memory.",
        _verdict(rates[FIRST] >= RATE_WANTED, f"first time at {rates[FIRST]:.2f}", f"at least {RATE_WANTED}"),
        _verdict(
            again < SECONDS_WANTED,
            f"second time in {again:.3g} s for {TEXTS_WANTED:,} texts",
            f"under {SECONDS_WANTED:g} s",
        ),
    )
    columns = ("texts to token ids", "seconds", "µs a text", "MB/s", "rate / encode_batch", "spread")
    return Table("Texts to token ids", columns, rows, notes)


def _verdict(met: bool, measured: str, wanted: str) -> str:
    return f"Target {'met' if met else 'MISSED'}: {measured}, wanted {wanted}."


def _waiting(config: BenchmarkConfig, device: torch.device, folder: Path, tell: Tell) -> Table:
    sizes = sizes_of(config)
    loader = _loader(config, sizes, folder)
    work = epoch(lambda: ours_by_default(sizes, config.max_length), list(loader), torch.float32, device)
    num_batches = len(work.batches)
    variants: dict[str, Callable[[], object]] = {
        BUILDING: lambda: [None for batch in loader if moved(batch, device)],
        TRAINING: work,
    }
    timings = in_turn(variants, config.rounds, device, tell)
    share = timings[BUILDING].ratio_to(timings[TRAINING])
    rows = [
        (name, f"{timing.median:.3g}", f"{timing.median / num_batches * 1e3:.3g}", f"{timing.spread:.0%}")
        for name, timing in timings.items()
    ]
    notes = (
        f"{config.texts:,} texts of lognormal lengths, {num_batches} batches of at most {config.tokens_per_batch:,} "
        f"positions; {config.num_layers} layers of width {config.d_model} with {config.num_heads} heads, AdamW, "
        "no n-grams. Ids lie on disk; batches are built, and moved to a GPU, in the process that trains, which waits "
        "all that time.",
        _verdict(share < SHARE_WANTED, f"waiting takes {share:.2%} of the steps' time", f"under {SHARE_WANTED:.0%}"),
    )
    return Table("Waiting for data", ("an epoch", "seconds", "ms a batch", "spread"), rows, notes)


def _loader(config: BenchmarkConfig, sizes: Sizes, folder: Path) -> BatchLoader:
    """Return the loader of an epoch, its ids mapped from a file as those of a run are."""
    made = texts_of(lognormal_lengths(config.texts, longest=config.max_length), sizes)
    np.save(folder / "ids.npy", made.texts.ids)
    texts = dataclasses.replace(made.texts, ids=np.load(folder / "ids.npy", mmap_mode="r"))
    sampler = TokenBudgetSampler(texts.lengths, config.tokens_per_batch, seed=0)
    return BatchLoader(TextBatches(texts, made.labels), sampler)
