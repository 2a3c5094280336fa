"""Encoding a split once, into one array on disk, so that memory does not grow with the data."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datasets import Dataset
from tokenizers import Encoding, Tokenizer

from headscope.data.cache import content_key
from headscope.data.token_ids import EncodedTexts, joined

TEXTS_AT_ONCE = 10_000


def encode(tokenizer: Tokenizer, dataset: Dataset, cache: Path) -> EncodedTexts:
    """Encode the columns text and text_pair, or read what an earlier call left in the cache."""
    columns = [column for column in ("text", "text_pair") if column in dataset.column_names]
    texts = [text for column in columns for text in dataset[column]]
    settings = f"{tokenizer.to_str()} {tokenizer.encode_special_tokens}"
    folder = cache / "encoded" / content_key([settings, *columns, *texts])
    if not folder.exists():
        _write(tokenizer, dataset, columns, folder)
    return _read(folder)


def _encodings(tokenizer: Tokenizer, dataset: Dataset, columns: list[str]) -> Iterator[list[Encoding]]:
    for batch in dataset.iter(TEXTS_AT_ONCE):
        pairs = (
            batch[columns[0]] if len(columns) == 1 else list(zip(*(batch[column] for column in columns), strict=True))
        )
        yield tokenizer.encode_batch_fast(pairs)


def _write(tokenizer: Tokenizer, dataset: Dataset, columns: list[str], folder: Path) -> None:
    """Fill a temporary folder and put it in place at the end, so that a half-written one is never read."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".encoding."))
    try:
        lengths, num_cut = [0], 0
        with (temporary / "ids.bin").open("wb") as ids, (temporary / "segments.bin").open("wb") as segments:
            for encodings in _encodings(tokenizer, dataset, columns):
                texts = joined(encodings, pairs=len(columns) == 2)
                ids.write(texts.ids.tobytes())
                if texts.segments is not None:
                    segments.write(texts.segments.tobytes())
                lengths += texts.lengths.tolist()
                num_cut += texts.num_cut
        np.save(temporary / "starts.npy", np.cumsum(lengths, dtype=np.int64))
        (temporary / "facts.json").write_text(json.dumps({"num_cut": num_cut, "pairs": len(columns) == 2}))
        if not folder.exists():
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _read(folder: Path) -> EncodedTexts:
    facts = json.loads((folder / "facts.json").read_text())
    ids = np.memmap(folder / "ids.bin", dtype=np.int32, mode="r")
    segments = np.memmap(folder / "segments.bin", dtype=np.uint8, mode="r") if facts["pairs"] else None
    return EncodedTexts(ids, np.load(folder / "starts.npy"), segments, facts["num_cut"])
