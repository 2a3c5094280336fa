"""Columns of a data set, read some rows at a time: the texts stay on disk. N rows, C classes."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, List

from headscope.config import DataConfig
from headscope.files import digest

TEXT_COLUMNS = ("text", "text_pair")
ROWS_AT_ONCE = 1_000  # about a megabyte of texts; larger steps are no faster


def values(dataset: Dataset, column: str) -> Iterator[Any]:
    """Yield the values of a column, with only some rows in memory at a time."""
    for rows in dataset.select_columns([column]).iter(ROWS_AT_ONCE):
        yield from rows[column]


def tuples(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of several columns, row by row."""
    return zip(*(values(dataset, column) for column in columns), strict=True)


@dataclass(frozen=True)
class TextsOf:
    """The texts of some columns, one after the other, read from disk by each loop over them."""

    dataset: Dataset
    columns: Sequence[str]

    def __iter__(self) -> Iterator[str]:
        """Yield every text."""
        for column in self.columns:
            yield from values(self.dataset, column)


def text_columns(config: DataConfig) -> list[str]:
    """Return the source's column with the text and, for pairs, the one with the second text."""
    return [column for column in (config.text_column, config.text_pair_column) if column]


def texts_among(columns: Iterable[str]) -> list[str]:
    """Return which of a split's columns hold texts: text and, for pairs, text_pair."""
    return [column for column in TEXT_COLUMNS if column in columns]


def row_texts(dataset: Dataset) -> Iterator[str]:
    """Yield each row's text, or both texts of a pair on lines of their own."""
    return map("\n".join, tuples(dataset, texts_among(dataset.column_names)))


def numbers(dataset: Dataset, column: str) -> np.ndarray:
    """Return a column of integers, [N] of int64, or of lists of C small ones, [N, C] of int8."""
    table = dataset.select_columns([column]).with_format("arrow")[:]
    values = table.column(column).combine_chunks()
    feature = dataset.features[column]
    if isinstance(feature, List):
        return np.array(values.flatten()).reshape(-1, feature.length)
    return np.array(values)


def class_counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how many texts have each class, [C]; `labels` are [N] or, for several, [N, C]."""
    if labels.ndim == 1:
        return np.bincount(labels, minlength=num_classes)
    counts: np.ndarray = labels.sum(axis=0, dtype=np.int64)
    return counts


def digests(rows: Iterable[Sequence[str]]) -> np.ndarray:
    """Return the BLAKE2b digest of each row of texts, [N] of 16 bytes: different for other rows."""
    return np.fromiter(map(digest, rows), dtype="S16")


def column_digests(dataset: Dataset, columns: Sequence[str]) -> list[str]:
    """Return two digests of each text column: of all texts end to end, and of their lengths.

    They do not depend on how a data set is cut into chunks or picked from another one. The bytes
    are hashed where Arrow has them: making Python strings takes longer than all else.
    """
    found = []
    for column in columns:
        content = hashlib.blake2b(digest_size=16)
        lengths = hashlib.blake2b(digest_size=16)
        for rows in dataset.select_columns([column]).with_format("arrow").iter(ROWS_AT_ONCE):
            texts = pa.concat_arrays(rows.column(column).chunks).cast(pa.large_string())
            _, ends, letters = texts.buffers()
            starts = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
            content.update(memoryview(letters or b"")[starts[0] : starts[-1]])
            lengths.update(np.diff(starts).tobytes())
        found += [content.hexdigest(), lengths.hexdigest()]
    return found
