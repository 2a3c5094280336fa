"""Columns of a data set, read some rows at a time: the texts stay on disk. N rows, C classes."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset, List

from headscope.data.rows import COLLECTION, is_blank
from headscope.ground.errors import DataError, listed, shown
from headscope.ground.plain_rows import from_csv_cell
from headscope.settings.config import DataConfig

TEXT_COLUMNS = ("text", "text_pair")
WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")  # 007 is a name
ZONE = r"\d[T ]\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)\s*$"  # behind a time
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
    """The texts of a split, one after the other, read from disk by each loop over them."""

    dataset: Dataset

    def __iter__(self) -> Iterator[str]:
        """Yield every text."""
        for column in texts_among(self.dataset.column_names):
            yield from values(self.dataset, column)


def text_columns(config: DataConfig) -> list[str]:
    """Return the source's column with the text and, for pairs, the one with the second text."""
    return [column for column in (config.text_column, config.text_pair_column) if column]


def as_cell(value: Any) -> str | None:
    """Return a value of a column that cuts go by as text; None for a gap."""
    return None if is_gap(value) else str(value)


def cells(dataset: Dataset, column: str | None) -> np.ndarray | None:
    """Return a column that cuts go by as texts, None for a gap, [N]; None without such a column."""
    if column is None:
        return None
    return np.array([*map(as_cell, values(dataset, column))], dtype=object)


def times_of(cells: Sequence[str | None] | np.ndarray, where: str) -> np.ndarray:
    """Return numbers, or dates as ISO 8601 has them, [N] in the order of time.

    Raises:
        DataError: for a cell that is neither, or of a time zone where another is of none.
    """
    column = pd.Series(cells, dtype=object)
    times = pd.to_numeric(column, errors="coerce")
    if times.isna().any():
        dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        times = dates.dt.tz_localize(None)
    if times.isna().any():
        row = int(times.isna().argmax())
        expected = "expected a date such as 2026-11-27, in all rows, or numbers alone"
        raise DataError(f"{where}, row {row}: {expected}, got {shown(cells[row])}")
    has_zone = column.astype(str).str.contains(ZONE)
    if has_zone.nunique() > 1:
        row = int((has_zone != has_zone[0]).argmax())
        expected = f"expected a time zone in all rows or in none, as row 0 has {shown(cells[0])}"
        raise DataError(f"{where}, row {row}: {expected}, got {shown(cells[row])}")
    found: np.ndarray = times.to_numpy()
    return found


def texts_among(columns: Iterable[str]) -> list[str]:
    """Return which of a split's columns hold texts: text and, for pairs, text_pair."""
    return [column for column in TEXT_COLUMNS if column in columns]


def text_rows(dataset: Dataset) -> Iterator[tuple[str, ...]]:
    """Yield each row's text, or both texts of a pair."""
    return tuples(dataset, texts_among(dataset.column_names))


def row_texts(dataset: Dataset) -> Iterator[str]:
    """Yield each row's text, or both texts of a pair on lines of their own."""
    return map("\n".join, text_rows(dataset))


def numbers(dataset: Dataset, column: str) -> np.ndarray:
    """Return a column of integers, [N] of int64, or of lists of C small ones, [N, C] of int8."""
    table = dataset.with_format("arrow", columns=[column])[:]
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


def column_digests(dataset: Dataset, columns: Sequence[str]) -> list[str]:
    """Return two digests of each text column: of all texts end to end, and of their lengths.

    They do not depend on how a data set is cut into chunks or picked from another one. The bytes
    are hashed where Arrow has them: making Python strings takes longer than all else.
    """
    digests = []
    for column in columns:
        content = hashlib.blake2b(digest_size=16)
        lengths = hashlib.blake2b(digest_size=16)
        for rows in dataset.select_columns([column]).with_format("arrow").iter(ROWS_AT_ONCE):
            texts = pa.concat_arrays(rows.column(column).chunks).cast(pa.large_string())
            _, ends, letters = texts.buffers()
            last = texts.offset + len(texts)
            starts = np.frombuffer(ends, np.int64)[texts.offset : last + 1]
            content.update(memoryview(letters or b"")[starts[0] : starts[-1]])
            lengths.update(np.diff(starts).tobytes())
        digests += [content.hexdigest(), lengths.hexdigest()]
    return digests


# What the labels of a column are called.


def labels_of(dataset: Dataset, where: str, config: DataConfig) -> list[Names]:
    """Return the names of each row's labels; several of them only with data.multi_label.

    There a cell is a list of labels, also as JSON, or a string that is split. A null, also in a
    list, is a gap, and so is an empty string, but for one that is split: it has no label.

    Raises:
        DataError: for fractions, a number twice in a list, lists that all hold 0 and 1, or cells
            of text of which some look like a list and not all are one in JSON.
    """
    names = names_of_class_label(dataset, config)
    cells = lists_in_text([*values(dataset, config.label_column)], where, config)
    if config.multi_label:
        separator = config.label_separator
        cells = [split_labels(cell, separator) if isinstance(cell, str) else cell for cell in cells]
    lists = [cell for cell in cells if isinstance(cell, list)]
    if lists and all({*cell} == {0, 1} for cell in lists):  # of two classes, no number is twice
        raise _no_labels(where, lists[0])

    @cache  # rows share lists: a split may have millions
    def names_in(*labels: Any) -> Names:
        if any(map(is_gap, labels)):
            return None
        numbers = [label for label in labels if not isinstance(label, str)]
        if any(number % 1 for number in numbers) or len(numbers) > len(set(numbers)):
            raise _no_labels(where, numbers)
        return [label_name(label, names) for label in labels]

    return [names_in(*cell) if isinstance(cell, list) else names_in(cell) for cell in cells]


def _no_labels(where: str, numbers: Sequence[Any]) -> DataError:
    return DataError(
        f"{where}: expected integers or strings, each once, got [{listed(numbers)}]; 0 or 1 for "
        "each class is not read: write the classes that a text has"
    )


def lists_in_text(cells: list[Any], where: str, config: DataConfig) -> list[Any]:
    """Return cells with the list in place of each text that is one in JSON, if all texts are.

    Label Studio writes a list as an object with one key. A DataError if some texts alone look like
    lists, or if a text has one label.
    """
    texts = {cell for cell in cells if isinstance(cell, str) and not is_blank(cell)}
    alike = sorted(filter(COLLECTION.fullmatch, texts))
    if not alike:
        return cells
    found = {text: _json_list(text) for text in texts}
    remedy = f'write them as JSON, ["a", "b"], or join the labels by {config.label_separator!r}'
    if None not in found.values():
        if config.multi_label:
            return [found.get(cell, cell) if isinstance(cell, str) else cell for cell in cells]
        remedy = "set data.multi_label=true"
    raise DataError(f"{where}: cells hold lists or objects as text: {shown(alike[0])}; {remedy}")


def _json_list(text: str) -> list[Any] | None:
    """Return the list of labels that a text is in JSON; None if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if not isinstance(value, list) or any(isinstance(each, list | dict) for each in value):
        return None
    return value


def label_name(label: Any, names: Sequence[str] = ()) -> str:
    """Return the name of a label: 3.0, as pandas writes 3 beside a gap, is called 3.

    True, TRUE and true are all called true.
    """
    if isinstance(label, bool):
        label = str(label)
    if isinstance(label, str):
        name = label.strip()
        return name.lower() if name.lower() in ("true", "false") else name
    number = int(label)
    return names[number] if 0 <= number < len(names) else str(number)


def whole(name: str) -> str:
    """Return 3 for 3.0, as pandas writes a whole number in a column with a gap; else the name."""
    found = re.fullmatch(r"(-?\d+)\.0+", name)
    return found[1] if found else name


def known_classes(classes: Sequence[str], given: Iterable[str]) -> dict[str, str]:
    """Return the class for each name that is one, however a table has written it."""
    # Such as of a table that has lost our other columns: there a ' may stand before a formula.
    bare = {name: label_name(from_csv_cell(name)) for name in given}
    numbers = class_numbers(classes, [*map(label_name, bare), *bare.values()])
    found = {}
    for name, unguarded in bare.items():
        number = numbers.get(label_name(name), numbers.get(unguarded))
        if number is not None:
            found[name] = classes[number]
    return found


def class_numbers(classes: Sequence[str], names: Iterable[str]) -> dict[str, int]:
    """Return the number of the class of each of these names that is one.

    Where all classes are whole numbers, 3.0 is 3.
    """
    numbers = {label_name(name): number for number, name in enumerate(classes)}
    if not all(WHOLE.fullmatch(whole(name)) for name in numbers):
        return numbers
    spelled = {whole(name): number for name, number in numbers.items()}
    return {name: spelled[whole(name)] for name in names if whole(name) in spelled} | numbers


def split_labels(cell: str, separator: str) -> list[str]:
    """Return the labels between separators; an empty cell holds none."""
    return [part.strip() for part in cell.split(separator) if part.strip()]


def is_gap(value: Any) -> bool:
    """Tell whether a value is null, NaN or a blank text."""
    return is_blank(value) if isinstance(value, str) else value is None or value != value


def names_of_class_label(dataset: Dataset, config: DataConfig) -> list[str]:
    """Return the names of a ClassLabel, or of a list of them; none for another column."""
    feature = dataset.features[config.label_column]
    return list(getattr(getattr(feature, "feature", feature), "names", []))


def class_names(train: Dataset, rows: Iterable[list[str]], config: DataConfig) -> list[str]:
    """Return the names of the classes: a ClassLabel's own, else those of the rows, in order.

    Whole numbers are in the order of numbers; where all are whole, 1 and 1.0 are one class, 1.
    """
    if own := names_of_class_label(train, config):
        return own
    names = set(chain.from_iterable(rows))
    if not names:
        raise DataError(f"{config.path}, column {config.label_column!r}: no text has a label")
    numbers = {*map(whole, names)}
    if len(numbers) < len(names) and all(map(WHOLE.fullmatch, numbers)):
        names = numbers
    return sorted(names, key=int if all(map(WHOLE.fullmatch, names)) else None)
