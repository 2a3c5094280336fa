"""The labels of a text, in whatever form its column has them: always as a list, of one where a text has one class."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, LargeList, List

from headscope.data.columns import values
from headscope.data.config import DataConfig
from headscope.errors import DataError


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
    return (cell_labels(cell, config.label_separator) for cell in found)


def cell_labels(cell: Any, separator: str) -> list[Any]:
    """Return what stands between the separators. An empty cell is null to the reader of csv files."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(separator) if part.strip()]
    is_nan = isinstance(cell, float) and cell != cell
    return [] if cell is None or is_nan else [cell]  # a file whose cells hold one number each is read as numbers


def class_names(splits: DatasetDict, config: DataConfig) -> list[str]:
    """Return the names of the classes: a ClassLabel's own, else the labels found, in order, as strings."""
    feature = _of_one(splits["train"].features[config.label_column])
    if isinstance(feature, ClassLabel):
        return list(feature.names)
    found = {
        label
        for split in splits.values()
        for labels in label_lists(split, config.label_column, config)
        for label in labels
    }
    if not found:
        raise DataError(f"{config.path}, column {config.label_column!r}: no text has a label")
    # Each name once: where one file has 3 and another "3;5", both are read as class 3.
    return list(dict.fromkeys(map(_name, sorted(found, key=lambda label: (isinstance(label, str), label)))))


def name_lists(dataset: Dataset, column: str, config: DataConfig) -> Iterator[list[str]]:
    """Yield the names of each row's labels: a ClassLabel's own, or the number where it has none."""
    feature = _of_one(dataset.features[column])
    names = dict(enumerate(feature.names)) if isinstance(feature, ClassLabel) else {}
    for labels in label_lists(dataset, column, config):
        yield [names[label] if label in names else _name(label) for label in labels]


def _of_one(feature: Any) -> Any:
    """Return what a column says of one label."""
    return feature.feature if holds_lists(feature) else feature


def _name(label: object) -> str:
    # pandas reads a column of integers with a gap in it as floating: 3.0 is class 3. "good " is class "good".
    return str(int(label)) if isinstance(label, (bool, float)) else str(label).strip()


def with_numbers(dataset: Dataset, labels: list[str], config: DataConfig) -> Dataset:
    """Return the data set with its column label as numbers, all of whose names are among `labels`.

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
