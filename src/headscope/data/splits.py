"""Cutting a split into two, stratified by label, with near-duplicates on one side."""

import math
import re
from collections.abc import Iterable

import numpy as np
from datasets import Dataset
from sklearn.model_selection import train_test_split

from headscope.data.columns import digests, numbers, values

NOT_A_LETTER = re.compile(r"[\W\d_]+")


def near_duplicate_groups(*columns: Iterable[str]) -> np.ndarray:
    """Give each row a number, two the same if their texts are equal once lower-cased and stripped to letters.

    A row of several columns, such as a pair of texts, repeats another one only if each of its texts does. Groups are
    numbered in the order of their first rows.
    """
    keys = digests(tuple(map(_letters, row)) for row in zip(*columns, strict=True))
    _, first_rows, groups = np.unique(keys, return_index=True, return_inverse=True)
    places = np.empty_like(first_rows)
    places[np.argsort(first_rows)] = np.arange(len(first_rows))
    return places[groups]


def _letters(text: str) -> str:
    # A text without any letter is only equal to itself.
    return NOT_A_LETTER.sub("", text.lower()) or text


def cut(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset, int]:
    """Cut off a share of the rows: (what stays, what was cut off, how many rows repeat another one nearly).

    Groups of near-duplicates go to one side whole. Each group counts once, under the label of its first text, in
    a split that keeps the shares of the labels.

    Raises:
        ValueError: if there are too few groups for two sides.
    """
    columns = [name for name in ("text", "text_pair") if name in dataset.column_names]
    groups = near_duplicate_groups(*(values(dataset, name) for name in columns))
    _, first_rows = np.unique(groups, return_index=True)
    labels = numbers(dataset, "label")[first_rows]
    num_off = math.ceil(share * len(first_rows))
    wanted = stratification(labels, num_off)
    _, off = train_test_split(np.arange(len(first_rows)), test_size=num_off, random_state=seed, stratify=wanted)
    is_off = np.isin(groups, off)
    return (
        dataset.select(np.flatnonzero(~is_off)),
        dataset.select(np.flatnonzero(is_off)),
        len(groups) - len(first_rows),
    )


def limited(dataset: Dataset, limit: int | None, seed: int) -> Dataset:
    """Return at most `limit` rows, drawn so that the shares of the labels are kept."""
    if limit is None or len(dataset) <= limit:
        return dataset
    labels = numbers(dataset, "label")
    wanted = stratification(labels, limit)
    rows, _ = train_test_split(np.arange(len(dataset)), train_size=limit, random_state=seed, stratify=wanted)
    return dataset.select(np.sort(rows))


def stratification(labels: np.ndarray, size: int) -> np.ndarray | None:
    """Return the labels to stratify by for a side of this size, or None where not every class can be on both sides."""
    classes, counts = np.unique(labels, return_counts=True)
    has_room = len(classes) <= size <= len(labels) - len(classes)
    return labels if has_room and counts.min() >= 2 else None
