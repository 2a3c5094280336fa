"""Encoding a split once, into one array on disk, so that memory does not grow with the data."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset
from tokenizers import Tokenizer

from headscope.data.batching import EncodedTexts, joined, units_of
from headscope.data.columns import texts_among
from headscope.data.evidence import Vocabulary, WordTexts
from headscope.data.tokenizer import as_json
from headscope.files import content_key, temporary_path

TEXTS_AT_ONCE = 4_000
HASHED_AT_ONCE = (
    1_000  # rows; larger steps are slower for a shuffled split, whose rows Arrow gathers one by one
)


def encode(
    tokenizer: Tokenizer, dataset: Dataset, cache: Path, with_words: bool = False
) -> EncodedTexts:
    """Encode the columns text and text_pair, or read what an earlier call left in the cache.

    The cached files are named by the texts themselves and by the tokenizer, whatever data set the texts came in.

    Args:
        tokenizer: what makes token ids.
        dataset: a split.
        cache: where files are kept.
        with_words: return the word that each token shows too, for `headscope.data.evidence`.
    """
    columns = texts_among(dataset.column_names)
    settings = f"{as_json(tokenizer)} {tokenizer.encode_special_tokens} {with_words}"
    folder = cache / "encoded" / content_key([settings, *columns, *digests_of(dataset, columns)])
    if not folder.exists():
        _write(tokenizer, dataset, columns, folder, with_words)
    facts, starts = json.loads((folder / "facts.json").read_text()), np.load(folder / "starts.npy")
    ids = np.memmap(folder / "ids.bin", dtype=np.int32, mode="r")
    segments = (
        np.memmap(folder / "segments.bin", dtype=np.uint8, mode="r") if facts["pairs"] else None
    )
    units = np.memmap(folder / "units.bin", dtype=np.int32, mode="r") if with_words else None
    words = None if units is None else WordTexts(facts["words"], units, starts)
    return EncodedTexts(ids, starts, segments, facts["num_cut"], words)


def digests_of(dataset: Dataset, columns: list[str]) -> list[str]:
    """Return two digests of each column, one of the UTF-8 of all texts end to end and one of their lengths.

    The bytes are hashed where Arrow has them: making a Python string of every text takes longer than all else. Kept
    apart, the two do not depend on how a data set is cut into chunks or picked from another one.
    """
    digests = [(hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)) for _ in columns]
    for rows in dataset.select_columns(columns).with_format("arrow").iter(HASHED_AT_ONCE):
        for column, (content, lengths) in zip(columns, digests, strict=True):
            texts = pa.concat_arrays(rows.column(column).chunks).cast(pa.large_string())
            _, ends, letters = texts.buffers()
            starts = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
            content.update(memoryview(letters or b"")[starts[0] : starts[-1]])
            lengths.update(np.diff(starts).tobytes())
    return [digest.hexdigest() for pair in digests for digest in pair]


def _write(
    tokenizer: Tokenizer, dataset: Dataset, columns: list[str], folder: Path, with_words: bool
) -> None:
    """Fill a temporary folder and put it in place at the end, so that a half-written one is never read."""
    encode_batch = (
        tokenizer.encode_batch if with_words else tokenizer.encode_batch_fast
    )  # which knows no offsets
    pairs, lengths, num_cut, known = len(columns) == 2, [np.zeros(1, np.int64)], 0, Vocabulary()
    with temporary_path(folder) as temporary:
        temporary.mkdir()
        with (
            (temporary / "ids.bin").open("wb") as ids,
            (temporary / "segments.bin").open("wb") as segments,
            (temporary / "units.bin").open("wb") as units,
        ):
            # One batch after the other: on two cores, a thread that encodes ahead slows the tokenizer's own threads.
            for batch in dataset.iter(TEXTS_AT_ONCE):
                rows = list(zip(*(batch[column] for column in columns), strict=True))
                encodings = encode_batch(rows if pairs else batch[columns[0]])
                texts = joined(encodings, pairs)
                ids.write(texts.ids.tobytes())
                if texts.segments is not None:
                    segments.write(texts.segments.tobytes())
                if with_words:
                    units.write(units_of(encodings, rows, known).tobytes())
                lengths.append(texts.lengths)
                num_cut += texts.num_cut
        np.save(temporary / "starts.npy", np.cumsum(np.concatenate(lengths)))
        facts = {"num_cut": num_cut, "pairs": pairs, "words": known.words}
        (temporary / "facts.json").write_text(json.dumps(facts))
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
