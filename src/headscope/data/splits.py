"""Cutting a split into two: stratified by label, with near-duplicates or groups on one side.

Labels are [N], the class of each text, or [N, C], 1 at each class that a text has.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tokenizers
from datasets import Dataset
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from headscope.data.columns import column_digests, numbers, text_rows, texts_among, times_of
from headscope.data.units import MARKS, normal_form
from headscope.ground.arrays import cached_arrays
from headscope.ground.files import digest
from headscope.settings.config import DataConfig

RECIPE = 1  # raise it when `text_keys` returns others, so that no cached ones are used
NOT_LETTERS = re.compile(rf"(?:[^\w{MARKS}]|[\d_])+")
MOST_PARTS = 20  # that groups are dealt into
FEWEST_LEFT = 2  # texts of a class that a cut leaves in train


@dataclass(frozen=True)
class Rows:
    """What is known of the N rows of a split beside their texts and labels.

    Attributes:
        source_row: [N], the number of each in the source, from 0.
        key: [N], the same where the default tokens are equal; see `text_keys`.
        letters: [N], the same for near-duplicates.
        group: [N], the cells of data.group_column, None for a gap; None where cuts ignore groups.
        time: [N], the cells of data.time_column, likewise.
    """

    source_row: np.ndarray
    key: np.ndarray
    letters: np.ndarray
    group: np.ndarray | None = None
    time: np.ndarray | None = None

    def select(self, rows: np.ndarray) -> "Rows":
        """Return some rows, by their numbers or as [N] of bool."""
        arrays: dict[str, Any] = {
            name: None if column is None else column[rows] for name, column in vars(self).items()
        }
        return Rows(**arrays)

    @property
    def cut_by(self) -> dict[str, np.ndarray]:
        """Return the cells that cuts go by, under "group" or "time"; none where they do not."""
        cells = {"group": self.group, "time": self.time}
        return {name: column for name, column in cells.items() if column is not None}


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several splits, one after the other."""
    arrays: dict[str, Any] = {}
    for name in vars(parts[0]):
        columns = [getattr(part, name) for part in parts]
        arrays[name] = None if columns[0] is None else np.concatenate(columns)
    return Rows(**arrays)


def text_keys(rows: Iterable[Sequence[str]]) -> np.ndarray:
    """Return two keys of each row, a text or a pair, [N, 2] of int64.

    The first is the same where the default tokens are equal: it does not depend on case, full or
    half width, other ways to encode the same letters, or the number of spaces. The second is the
    same for near-duplicates, each of whose texts has the same letters in its normal form; a text
    without any letter is equal to itself alone, with any spaces.
    """

    def digests() -> Iterator[bytes]:
        for row in rows:
            texts = [" ".join(normal_form(text).split()) for text in row]
            yield digest(texts)[:8]
            yield digest(NOT_LETTERS.sub("", text) or text for text in texts)[:8]

    return np.frombuffer(b"".join(digests()), "<i8").reshape(-1, 2)


def cached_keys(split: Dataset, cache: Path) -> np.ndarray:
    """Return the `text_keys` of a split, from the cache where they are there."""
    texts = column_digests(split, texts_among(split.column_names))
    name = digest([f"{RECIPE} {tokenizers.__version__}", *texts]).hex()
    path = cache / "keys" / f"{name}.safetensors"
    return cached_arrays(path, lambda: {"keys": text_keys(text_rows(split)).copy()})["keys"]


def in_order(keys: np.ndarray) -> np.ndarray:
    """Return a number for each key, the same for equal ones, in the order of their first places."""
    numbers: np.ndarray = pd.factorize(keys)[0]
    return numbers


def rows_off(
    labels: np.ndarray, rows: Rows, groups: np.ndarray, share: float, config: DataConfig
) -> np.ndarray:
    """Return which rows to cut off, [N] of bool: other groups, the latest, or no near-duplicates.

    Raises:
        ValueError: where too few texts are left for two sides.
    """
    if config.group_column:
        return cut_groups(labels, groups, share, config.split_seed)
    if rows.time is not None:
        where = f"{config.path}, column {config.time_column!r}"
        return cut_latest(labels, groups, times_of(rows.time, where), share)
    return cut(labels, groups, share, config.split_seed)


def cut(labels: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return which rows to cut off, a share of all, [N] of bool.

    Groups of near-duplicates go to one side whole. Each group counts once, under the label of its
    first text, in a split that keeps the shares of the labels. Where that cannot be, since there
    are more classes than texts to cut off or a class has too few texts, the rare classes share a
    stratum and give one text each at most (see `splittable_rows` and `strata`). Where a text has
    any number of labels, the shares of its rarest one are kept, and a text with a label too rare to
    divide stays. So do the last texts of a class.

    Raises:
        ValueError: if there are too few groups for two sides.
    """
    _, first_rows, groups = np.unique(groups, return_index=True, return_inverse=True)
    of_groups = labels[first_rows]
    num_off = math.ceil(share * len(first_rows))
    rows = splittable_rows(of_groups, num_off, seed)
    wanted = stratification(strata(of_groups[rows], num_off), num_off)
    _, off = train_test_split(rows, test_size=num_off, random_state=seed, stratify=wanted)
    return _without_last(np.isin(groups, off), labels, groups)


def cut_groups(labels: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return which rows to cut off, as `cut` does, for groups of any size.

    They are dealt into up to 20 parts by scikit-learn's StratifiedGroupKFold, which keeps the
    shares of the labels as far as groups let it. Parts are cut off until they are `share` of the
    rows, those first whose size is nearest to what it should be.

    Raises:
        ValueError: if there is one group, or no class has a text to spare.
    """
    wanted = strata(labels, math.ceil(share * len(labels)))
    num_parts = min(MOST_PARTS, len(np.unique(groups)), int(np.bincount(wanted).max()))
    parts = StratifiedGroupKFold(num_parts, shuffle=True, random_state=seed)
    is_off = np.zeros(len(labels), bool)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        of_parts = [rows for _, rows in parts.split(labels, wanted, groups)]
    # A part with a group that is larger than it should be stays in train.
    of_parts.sort(key=lambda rows: abs(len(rows) * num_parts - len(labels)))
    missing = share * len(labels)
    for rows in of_parts:
        if is_off.any() and abs(missing - len(rows)) > abs(missing):  # nearer without it
            break
        is_off[rows] = True
        missing -= len(rows)
    return _without_last(is_off, labels, groups)


def cut_latest(
    labels: np.ndarray, groups: np.ndarray, times: np.ndarray, share: float
) -> np.ndarray:
    """Return which rows to cut off, as `cut` does: the latest, with all of the same time."""
    order = np.argsort(times, kind="stable")
    size = math.ceil(share * len(order))
    _, off = train_test_split(order, test_size=size, shuffle=False)
    return _without_last(times >= times[off[0]], labels, groups)


def _without_last(is_off: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return which rows to cut off but for the last texts of a class, and those of their groups."""
    has_lost: np.ndarray  # rows with a class of which no other row would stay
    if labels.ndim == 1:
        has_lost = np.isin(labels, np.setdiff1d(labels[is_off], labels[~is_off]))
    else:
        is_lost = ~np.any(labels[~is_off], axis=0)  # [C]
        has_lost = np.any(labels[:, is_lost], axis=1)
    is_off &= ~np.isin(groups, groups[has_lost])
    if not is_off.any():
        raise ValueError("no class has a text to spare")
    return is_off


def limited_rows(labels: np.ndarray, limit: int | None, seed: int) -> np.ndarray:
    """Return at most `limit` rows, in order, drawn so that the shares of the labels are kept."""
    rows = np.arange(len(labels))
    if limit is None or len(rows) <= limit:
        return rows
    wanted = stratification(strata(labels, limit), limit)
    return np.sort(train_test_split(rows, train_size=limit, random_state=seed, stratify=wanted)[0])


def limited(dataset: Dataset, limit: int | None, seed: int) -> Dataset:
    """Return at most `limit` rows of a split; see `limited_rows`."""
    return dataset.select(limited_rows(numbers(dataset, "label"), limit, seed))


def splittable_rows(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the rows that a side of this size may take: all but those of too rare a label.

    A side is owed less than one text of a label that fewer than `_fewest` texts have. A random draw
    could still take most of them from training. Where a text has one class, classes keep two rows
    in train, or one where there are too few, and of a rare one the seed draws the row that may go,
    if need be.
    """
    rows = np.arange(len(labels))
    fewest = _fewest(len(labels), size)
    if labels.ndim == 2:
        is_rare = labels.sum(axis=0, dtype=np.int64) < fewest
        without_rare = rows[~labels[:, is_rare].any(axis=1)]
        return without_rare if len(without_rare) > size else rows
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    drawn = order[np.unique(classes[order], return_index=True)[1]]  # a row of each class
    frequent = rows[(counts > FEWEST_LEFT)[classes]]
    if len(frequent) <= size:
        return np.setdiff1d(rows, drawn)
    if stratification(labels[frequent], size) is not None:
        return frequent
    kept = np.isin(frequent, drawn) | (counts >= fewest)[classes[frequent]]
    return frequent[kept] if kept.sum() > size else np.setdiff1d(rows, drawn)


def strata(labels: np.ndarray, size: int) -> np.ndarray:
    """Return the stratum of each text, [N], for a side of this size: its class, where it has one.

    Where a text has any number of labels it is the rarest of them. What is too small for a stratum
    is one together.
    """
    fewest = _fewest(len(labels), size)
    if labels.ndim == 1:
        return (
            labels if stratification(labels, size) is not None else _with_one_rest(labels, fewest)
        )
    frequencies = np.append(labels.sum(axis=0, dtype=np.int64), len(labels))
    has = np.pad(labels, ((0, 0), (0, 1)), constant_values=1)  # without a label: a class of its own
    return _with_one_rest(np.where(has, frequencies, len(labels) + 1).argmin(axis=1), fewest)


def _with_one_rest(wanted: np.ndarray, fewest: int) -> np.ndarray:
    """Return strata; those below `fewest` become one, or join the largest if that is too small."""
    _, strata, counts = np.unique(wanted, return_inverse=True, return_counts=True)
    rest = counts[strata] < fewest
    strata[rest] = len(counts) if rest.sum() >= fewest else counts.argmax()
    return strata


def _fewest(total: int, size: int) -> int:
    """Return how many texts a stratum needs so that either side's share of it is a text or more."""
    return max(2, math.ceil(total / max(1, min(size, total - size))))


def stratification(labels: np.ndarray, size: int) -> np.ndarray | None:
    """Return the labels to stratify by, or None where not every class can be on both sides."""
    classes, counts = np.unique(labels, return_counts=True)
    has_room = len(classes) <= size <= len(labels) - len(classes)
    return labels if has_room and counts.min() >= 2 else None
