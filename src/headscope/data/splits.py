"""Cutting a split into two, stratified by label, with near-duplicates on one side.

Labels are [N], the class of each text, or [N, C], 1 at each class that a text has.
"""

import math
import re
from collections.abc import Iterable

import numpy as np
from datasets import Dataset
from sklearn.model_selection import train_test_split

from headscope.data.columns import digests, numbers, texts_among, values
from headscope.data.tokenizer import MARKS

GROUP = "headscope: group"  # column with the number of each row's group of near-duplicates
NOT_LETTERS = re.compile(rf"(?:[^\w{MARKS}]|[\d_])+")
FEWEST_LEFT = 2  # texts of a class that a cut leaves in train


def near_duplicate_groups(*columns: Iterable[str]) -> np.ndarray:
    """Give each row a number, two the same if their texts are equal once lower-cased and stripped to letters.

    A row of several columns, such as a pair of texts, repeats another one only if each of its texts does; a text
    without any letter is only equal to itself. Groups are numbered in the order of their first rows.
    """

    def letters(text: str) -> str:
        return NOT_LETTERS.sub("", text.lower()) or text

    return in_order(digests(tuple(map(letters, row)) for row in zip(*columns, strict=True)))


def in_order(keys: np.ndarray) -> np.ndarray:
    """Return a number for each key, the same for equal ones, in the order of their first places."""
    _, first_rows, groups = np.unique(keys, return_index=True, return_inverse=True)
    places = np.empty_like(first_rows)
    places[np.argsort(first_rows)] = np.arange(len(first_rows))
    return places[groups]


def groups_of(dataset: Dataset) -> np.ndarray:
    """Return the group of near-duplicates of each row of a data set, whose texts stand in text (and text_pair).

    They are found once: a column `GROUP` says what they were among more rows, of which these are some.
    """
    if GROUP in dataset.column_names:
        return in_order(numbers(dataset, GROUP))
    return near_duplicate_groups(
        *(values(dataset, name) for name in texts_among(dataset.column_names))
    )


def cut(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset, int]:
    """Cut off a share of the rows: (what stays, what was cut off, how many rows repeat another one nearly).

    Groups of near-duplicates go to one side whole. Each group counts once, under the label of its first text, in
    a split that keeps the shares of the labels. Where that cannot be, since there are more classes than texts to cut
    off or a class has too few texts, the rare classes share a stratum and give one text each at most (see `splittable_rows`
    and `strata`). Where a text has any number of labels, the shares of the frequent combinations are kept and otherwise
    those of the rarest labels, and a text with a label too rare to divide stays. So do the last texts of a class.

    Raises:
        ValueError: if there are too few groups for two sides.
    """
    groups, of_rows = groups_of(dataset), numbers(dataset, "label")
    _, first_rows = np.unique(groups, return_index=True)
    labels = of_rows[first_rows]
    num_off = math.ceil(share * len(first_rows))
    rows = splittable_rows(labels, num_off, seed)
    wanted = stratification(strata(labels[rows], num_off), num_off)
    _, off = train_test_split(rows, test_size=num_off, random_state=seed, stratify=wanted)
    is_off = np.isin(groups, off)
    has_lost: np.ndarray  # rows with a class of which no other row would stay
    if of_rows.ndim == 1:
        has_lost = np.isin(of_rows, np.setdiff1d(of_rows[is_off], of_rows[~is_off]))
    else:
        has_lost = np.any(of_rows[:, ~np.any(of_rows[~is_off], axis=0)], axis=1)
    is_off &= ~np.isin(groups, groups[has_lost])
    if not is_off.any():
        raise ValueError("no class has a text to spare")
    stays, cut_off = (dataset.select(np.flatnonzero(side)) for side in (~is_off, is_off))
    return stays, cut_off, len(groups) - len(first_rows)


def limited(dataset: Dataset, limit: int | None, seed: int) -> Dataset:
    """Return at most `limit` rows, drawn so that the shares of the labels are kept."""
    if limit is None or len(dataset) <= limit:
        return dataset
    labels = numbers(dataset, "label")
    wanted = stratification(strata(labels, limit), limit)
    rows, _ = train_test_split(
        np.arange(len(dataset)), train_size=limit, random_state=seed, stratify=wanted
    )
    return dataset.select(np.sort(rows))


def splittable_rows(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the rows that a side of this size may take: all, but for those with a label that is too rare to divide.

    A side is owed less than one text of a label that fewer than `_fewest` texts have. A random draw could still take
    most of them from training. Where a text has one class, classes keep two
    rows in train, or one where there are too few, and of a rare one the seed draws the row that may go, if need be.
    """
    rows, fewest = np.arange(len(labels)), _fewest(len(labels), size)
    if labels.ndim == 2:
        is_rare = labels.sum(axis=0, dtype=np.int64) < fewest
        found = rows[~labels[:, is_rare].any(axis=1)]
        return found if len(found) > size else rows
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    drawn = order[np.unique(classes[order], return_index=True)[1]]  # a row of each class
    found = rows[(counts > FEWEST_LEFT)[classes]]
    if len(found) <= size:
        return np.setdiff1d(rows, drawn)
    if stratification(labels[found], size) is not None:
        return found
    kept = np.isin(found, drawn) | (counts >= fewest)[classes[found]]
    return found[kept] if kept.sum() > size else np.setdiff1d(rows, drawn)


def strata(labels: np.ndarray, size: int) -> np.ndarray:
    """Return a number for each text, [N], by which to stratify a side of this size: its class, where it has one.

    Where a text has any number of labels it is its combination of labels, if enough texts have the same one, else the
    rarest of its labels; what is still too small is one stratum together. So are classes, where they are too many or
    too small for a stratum each.
    """
    fewest = _fewest(len(labels), size)
    if labels.ndim == 1:
        return (
            labels if stratification(labels, size) is not None else _with_one_rest(labels, fewest)
        )
    frequencies = labels.sum(axis=0, dtype=np.int64)
    _, combinations, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    rarest = np.where(labels, frequencies, len(labels) + 1).argmin(axis=1)
    return _with_one_rest(
        np.where(counts[combinations] >= fewest, combinations, len(counts) + rarest), fewest
    )


def _with_one_rest(wanted: np.ndarray, fewest: int) -> np.ndarray:
    """Return strata, those smaller than `fewest` as one together, or as part of the largest where that is too small."""
    _, found, counts = np.unique(wanted, return_inverse=True, return_counts=True)
    rest = counts[found] < fewest
    found[rest] = len(counts) if rest.sum() >= fewest else counts.argmax()
    return found


def _fewest(total: int, size: int) -> int:
    """Return how many texts a stratum needs so that either side's share of it is a text or more."""
    return max(2, math.ceil(total / max(1, min(size, total - size))))


def stratification(labels: np.ndarray, size: int) -> np.ndarray | None:
    """Return the labels to stratify by for a side of this size, or None where not every class can be on both sides."""
    classes, counts = np.unique(labels, return_counts=True)
    has_room = len(classes) <= size <= len(labels) - len(classes)
    return labels if has_room and counts.min() >= 2 else None
