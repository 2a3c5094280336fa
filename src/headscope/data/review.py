"""A file of `headscope labels` that somebody has reviewed: texts to leave out, labels to correct.

A row is known by its key, a digest of its texts and its label. N rows.
"""

from collections.abc import Mapping

import numpy as np
from datasets import Dataset
from jaxtyping import Bool

from headscope.data.columns import numbers, texts_among, tuples
from headscope.data.rows import read_rows
from headscope.errors import DataError, listed
from headscope.files import digest


def row_keys(split: Dataset, classes: list[str]) -> list[str]:
    """Return the digest of each row's texts and label, whatever its place."""
    columns = [*texts_among(split.column_names), "label"]
    return [digest([*texts, classes[number]]).hex() for *texts, number in tuples(split, columns)]


def read_review(path: str, classes: list[str]) -> dict[str, str]:
    """Return key -> what the column `corrected` has: a class, or "" for a text to leave out."""
    rows = read_rows(path)
    review = {str(row.get("key")): str(row.get("corrected") or "").strip() for row in rows}
    if unknown := {*review.values()} - {"", *classes}:
        raise DataError(
            f"data.drop_rows={path}, column 'corrected': expected one of {listed(classes)} or "
            f"nothing, got {listed(sorted(unknown))}"
        )
    return review


def reviewed(
    split: Dataset, classes: list[str], review: Mapping[str, str]
) -> tuple[Dataset, Bool[np.ndarray, " N"], int]:
    """Return what is left of a split, which rows those are, and how many labels are corrected."""
    names = [review.get(key) for key in row_keys(split, classes)]
    given = numbers(split, "label").tolist()
    pairs = zip(names, given, strict=True)
    labels = [classes.index(name) if name else number for name, number in pairs]
    is_kept = np.array([name != "" for name in names])
    rows = np.flatnonzero(is_kept)
    if labels == given:
        return split.select(rows), is_kept, 0
    changed = split.remove_columns("label").add_column("label", labels)
    return changed.select(rows), is_kept, sum(map(bool, names))
