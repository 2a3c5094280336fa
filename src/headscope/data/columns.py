"""Columns of a data set, read some rows at a time, so that the texts stay on disk however many there are.

Labels are read as lists, of one where a text has one class, whatever the form of their column. N rows, C classes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, LargeList, List

from headscope.config import DataConfig
from headscope.errors import DataError
from headscope.files import digest

PLACE = "headscope: place"  # column that says where in its file a row stands, such as "line 3"
ROWS_AT_ONCE = 1_000  # about a megabyte of texts; larger steps are no faster


def values(dataset: Dataset, column: str) -> Iterator[Any]:
    """Yield the values of a column as Python has them, with only some rows in memory at a time."""
    for rows in dataset.select_columns([column]).iter(ROWS_AT_ONCE):
        yield from rows[column]


def tuples(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of several columns, row by row."""
    return zip(*(values(dataset, column) for column in columns), strict=True)


def texts_among(columns: Iterable[str]) -> list[str]:
    """Return which of the columns hold texts: text and, for pairs, text_pair."""
    return [column for column in ("text", "text_pair") if column in columns]


def row_texts(dataset: Dataset) -> Iterator[str]:
    """Yield each row's text, or both texts of a pair on lines of their own, as what counts words reads them."""
    return map("\n".join, tuples(dataset, texts_among(dataset.column_names)))


def numbers(dataset: Dataset, column: str) -> np.ndarray:
    """Return a column of whole numbers, [N] of int64, or of lists of C small ones each, [N, C] of int8."""
    feature = dataset.features[column]
    width = feature.length if isinstance(feature, List) else None
    found = (
        np.empty(len(dataset), np.int64)
        if width is None
        else np.empty((len(dataset), width), np.int8)
    )
    start = 0
    for rows in dataset.select_columns([column]).with_format("arrow").iter(ROWS_AT_ONCE):
        some = rows.column(column)
        flat = some if width is None else some.combine_chunks().flatten()
        found[start : start + len(rows)] = flat.to_numpy().reshape(-1, *found.shape[1:])
        start += len(rows)
    return found


def class_counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how many texts have each class, [C], from the class of each text, [N], or from what each has, [N, C]."""
    return (
        np.bincount(labels, minlength=num_classes)
        if labels.ndim == 1
        else labels.sum(axis=0, dtype=np.int64)
    )


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
    """The texts of some columns of a data set, column after column, read anew from disk by each loop over them."""

    dataset: Dataset
    columns: Sequence[str]

    def __iter__(self) -> Iterator[str]:
        """Yield every text."""
        for column in self.columns:
            yield from values(self.dataset, column)


def holds_lists(feature: Any) -> bool:
    """Tell whether a column holds a list in each row."""
    return isinstance(feature, List | LargeList)


def label_lists(dataset: Dataset, column: str, config: DataConfig) -> Iterator[list[Any]]:
    """Yield the labels of each row: its one value, or, with data.multi_label, its list or the parts of its cell."""
    found = values(dataset, column)
    if not config.multi_label:
        return ([label] for label in found)
    if holds_lists(dataset.features[column]):
        return found
    return (split_labels(cell, config.label_separator) for cell in found)


def split_labels(cell: Any, separator: str) -> list[Any]:
    """Return what stands between the separators. An empty cell is null to the reader of csv files."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(separator) if part.strip()]
    is_nan = isinstance(cell, float) and cell != cell
    return (
        [] if cell is None or is_nan else [cell]
    )  # a file whose cells hold one number each is read as numbers


def class_names(splits: DatasetDict, config: DataConfig) -> list[str]:
    """Return the names of the classes: a ClassLabel's own, else the labels found, in order, as strings."""
    column = config.label_column
    feature = _of_one(splits["train"].features[column])
    if isinstance(feature, ClassLabel):
        return list(feature.names)
    found = {
        label
        for split in splits.values()
        for labels in label_lists(split, column, config)
        for label in labels
    }
    if not found:
        raise DataError(f"{config.path}, column {column!r}: no text has a label")
    # Each name once: where one file has 3 and another "3;5", both are read as class 3.
    return list(
        dict.fromkeys(map(_name, sorted(found, key=lambda label: (isinstance(label, str), label))))
    )


def name_lists(dataset: Dataset, column: str, config: DataConfig) -> Iterator[list[str]]:
    """Yield the names of each row's labels: a ClassLabel's own, or the number where it has none."""
    feature = _of_one(dataset.features[column])
    names = dict(enumerate(feature.names)) if isinstance(feature, ClassLabel) else {}
    for labels in label_lists(dataset, column, config):
        yield [names[label] if label in names else _name(label) for label in labels]


def _of_one(feature: Any) -> Any:
    return feature.feature if holds_lists(feature) else feature


def _name(label: object) -> str:
    # pandas reads a column of integers with a gap in it as floating: 3.0 is class 3. "good " is class "good".
    return str(int(label)) if isinstance(label, (bool, float)) else str(label).strip()


def with_numbers(dataset: Dataset, labels: list[str], config: DataConfig) -> Dataset:
    """Return the data set with the names in its column label, all among `labels`, as numbers.

    They are an index into `labels`, or, with data.multi_label, a list of C numbers: 1 at the classes that a text has.
    """
    index = {name: number for number, name in enumerate(labels)}
    rows = ([index[name] for name in names] for names in name_lists(dataset, "label", config))
    column: Any
    if config.multi_label:
        table = np.zeros((len(dataset), len(labels)), dtype=np.int8)
        for place, row in enumerate(rows):
            table[place, row] = 1
        column = pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), len(labels))
    else:
        column = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(dataset))
    return dataset.remove_columns("label").add_column("label", column)
