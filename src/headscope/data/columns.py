"""Columns of a data set, read some rows at a time: the texts stay on disk. N rows, C classes."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, List

from headscope.data.rows import is_blank
from headscope.ground.errors import DataError
from headscope.ground.files import digest
from headscope.settings.config import DataConfig

TEXT_COLUMNS = ("text", "text_pair")
WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")  # 007 is a name
BOOLEANS = {"true", "false"}
Names = list[str] | None  # of the labels of a row; None where there is a gap
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


# What the labels of a column are called.


def labels_of(dataset: Dataset, where: str, config: DataConfig) -> list[Names]:
    """Return the names of each row's labels; several of them only with data.multi_label.

    There a cell is a list, or a string that is split. A null, also in a list, is a gap, and so is
    an empty string, but for one that is split: it has no label.

    Raises:
        DataError: for fractions, or a number twice in a list, as if it had 0 or 1 for each class.
    """
    names = names_of_class_label(dataset, config)
    separator = config.label_separator if config.multi_label else None
    known: dict[Any, Names] = {}  # rows share lists: a split may have millions
    rows = []
    for row, cell in enumerate(values(dataset, config.label_column)):
        key = tuple(cell) if isinstance(cell, list) else cell
        if key not in known:
            try:
                known[key] = _names_in(cell, names, separator)
            except ValueError as error:
                raise DataError(f"{where}, row {row}: {error}") from None
        rows.append(known[key])
    return rows


def _names_in(cell: Any, names: list[str], separator: str | None) -> Names:
    labels = cell if isinstance(cell, list) else [cell]
    if separator is not None and isinstance(cell, str):
        labels = split_labels(cell, separator)
    if any(map(is_gap, labels)):
        return None
    numbers = [label for label in labels if not isinstance(label, str)]
    if any(number % 1 for number in numbers):
        raise ValueError(f"expected integers or strings, got {numbers[:10]}")
    if len(numbers) > len(set(numbers)):
        raise ValueError(
            f"expected the labels that a text has, such as [0, 3], got {numbers[:10]}, which has "
            "one twice"
        )
    return [label_name(label, names) for label in labels]


def label_name(label: Any, names: Sequence[str] = ()) -> str:
    """Return the name of a label: 3.0, as pandas writes 3 beside a gap, is called 3."""
    if isinstance(label, str):
        return label.strip()
    if isinstance(label, bool):
        return str(label).lower()
    number = int(label)
    return names[number] if 0 <= number < len(names) else str(number)


def split_labels(cell: str, separator: str) -> list[str]:
    """Return the labels between separators; an empty cell holds none."""
    return [part.strip() for part in cell.split(separator) if part.strip()]


def is_gap(value: Any) -> bool:
    """Tell whether a value is null, NaN or a blank text."""
    if isinstance(value, str):
        return is_blank(value)
    return value is None or value != value


def names_of_class_label(dataset: Dataset, config: DataConfig) -> list[str]:
    """Return the names of a ClassLabel, or of a list of them; none for another column."""
    feature = dataset.features[config.label_column]
    return list(getattr(getattr(feature, "feature", feature), "names", []))


def class_names(train: Dataset, rows: Iterable[list[str]], config: DataConfig) -> list[str]:
    """Return the names of the classes: a ClassLabel's own, else those of the rows, in order.

    Whole numbers are in the order of numbers; True, TRUE and true are one class, true.
    """
    if own := names_of_class_label(train, config):
        return own
    names = set(chain.from_iterable(rows))
    if not names:
        raise DataError(f"{config.path}, column {config.label_column!r}: no text has a label")
    if all(map(WHOLE.fullmatch, names)):
        return sorted(names, key=int)
    plain = {name.lower() for name in names}
    return sorted(plain if plain <= BOOLEANS else names)


def numbers_of(classes: list[str]) -> dict[str, int]:
    """Return the number of each class by its name; true and false by each of their spellings."""
    return {
        spelling: number
        for number, name in enumerate(classes)
        for spelling in ((name.title(), name.upper(), name) if name in BOOLEANS else (name,))
    }
