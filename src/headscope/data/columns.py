"""Reading columns of a data set some rows at a time, so that the texts stay on disk however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, List

from headscope.data.cache import digest

ROWS_AT_ONCE = 1_000  # about a megabyte of texts; larger steps are no faster


def values(dataset: Dataset, column: str) -> Iterator[Any]:
    """Yield the values of a column as Python has them, of which some rows' alone are in memory."""
    for rows in dataset.select_columns([column]).iter(ROWS_AT_ONCE):
        yield from rows[column]


def tuples(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of several columns, row by row."""
    return zip(*(values(dataset, column) for column in columns), strict=True)


def texts_among(columns: Iterable[str]) -> list[str]:
    """Return which of the columns hold texts: text and, for pairs, text_pair."""
    return [column for column in ("text", "text_pair") if column in columns]


def as_one(texts: Sequence[str]) -> str:
    """Return a row's text, or both texts of a pair on lines of their own, as what counts words reads them."""
    return "\n".join(texts)


def row_texts(dataset: Dataset) -> Iterator[str]:
    """Yield each row as one text, read from disk as they are asked for."""
    return map(as_one, tuples(dataset, texts_among(dataset.column_names)))


def numbers(dataset: Dataset, column: str) -> np.ndarray:
    """Return a column of whole numbers, [N] of int64, or of lists of C small ones each, [N, C] of int8."""
    feature = dataset.features[column]
    width = feature.length if isinstance(feature, List) else None
    found = np.empty(len(dataset), np.int64) if width is None else np.empty((len(dataset), width), np.int8)
    start = 0
    for rows in dataset.select_columns([column]).with_format("arrow").iter(ROWS_AT_ONCE):
        some = rows.column(column)
        flat = some if width is None else some.combine_chunks().flatten()
        found[start : start + len(rows)] = flat.to_numpy().reshape(-1, *found.shape[1:])
        start += len(rows)
    return found


def class_counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how many texts have each class, [C], from the class of each text, [N], or from what each has, [N, C]."""
    return np.bincount(labels, minlength=num_classes) if labels.ndim == 1 else labels.sum(axis=0, dtype=np.int64)


def digests(rows: Iterable[Sequence[str]]) -> np.ndarray:
    """Return the BLAKE2b digest of each row of texts, [N] of 16 bytes: two are the same if the rows are.

    Two different rows of N have one digest with a probability of about N^2 / 2^129: 10^-21 for a billion rows.
    """
    return np.fromiter(map(digest, rows), dtype="S16")


def num_known(found: np.ndarray, known: np.ndarray) -> int:
    """Return how many of the digests `found` are among `known`, which is not empty."""
    known = np.sort(known)  # np.isin takes several times as long for digests
    places = np.minimum(np.searchsorted(known, found), len(known) - 1)
    return int((known[places] == found).sum())


@dataclass(frozen=True)
class TextsOf:
    """The texts of some columns, column after column, read anew from disk each time they are gone through.

    Attributes:
        dataset: where they stand.
        columns: which of its columns.
    """

    dataset: Dataset
    columns: Sequence[str]

    def __iter__(self) -> Iterator[str]:
        """Yield every text."""
        for column in self.columns:
            yield from values(self.dataset, column)
