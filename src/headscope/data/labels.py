"""What the labels of a column are called: integers, strings, booleans, a ClassLabel, or lists."""

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

from datasets import Dataset

from headscope.config import DataConfig
from headscope.data.columns import values
from headscope.data.rows import is_blank
from headscope.errors import DataError

WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")  # 007 is a name
BOOLEANS = {"true", "false"}
Names = list[str] | None  # of the labels of a row; None where there is a gap


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


def label_name(label: Any, names: list[str]) -> str:
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
