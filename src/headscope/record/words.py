"""The words that add most to each class, as words.csv of a run has them; see `heads.words`."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headscope.ground.plain_rows import from_csv_cell

LISTED = 20  # words of each class, for it and against it
LEAST_TEXTS = 3  # in which a word occurs that is listed, if any word does
NAMED = 6  # columns before those of the heads: class, word, mean, interval, n, example
MOST_LISTS = 2_000  # of a class and a head, milliseconds each; beyond, heads are left out
MOST_IN_HEADER = 2**16  # characters
Listed = dict[str, dict[str, list[list[list[Any]]]]]


def certain(table: pd.DataFrame) -> pd.Series:
    """Return how much each word surely adds or takes: the end of its interval that is nearer to 0.

    0 where 0 is within the interval, and for words in fewer than 3 texts.
    """
    least = min(LEAST_TEXTS, table["n"].max())
    size = (table["mean"].abs() - table["interval"].fillna(0.0)).clip(lower=0.0)
    return size.where(table["n"] >= least, 0.0) * np.sign(table["mean"])


def ranked(table: pd.DataFrame, column: str = "mean") -> pd.DataFrame:
    """Return the words of enough texts, the largest first: by `certain`, for a head by its mean.

    Those of which `certain` is 0 are no finding, and left out.
    """
    own = table[table["n"] >= min(LEAST_TEXTS, table["n"].max())]
    own = own.sort_values(column, key=abs, ascending=False, kind="stable")
    if column == "mean":
        order = certain(own).abs().sort_values(ascending=False, kind="stable")
        own = own.loc[order.index[order > 0]]
    return own


def listed_words(table: pd.DataFrame) -> Listed:
    """Return for the mean and each head, and each class: the words for it and those against it.

    A word is [word, mean, interval, n, example], the largest first; a head has no interval.
    """
    found: Listed = {}
    for column in ["mean", *table.columns[NAMED:]]:
        found[column] = {}
        for label, own in table.groupby("class", sort=False):
            words = ranked(own, column)
            sides = [words[words[column] > 0], words[words[column] < 0]]
            found[column][str(label)] = [_rows(side.head(LISTED), column) for side in sides]
    return found


def read_words(path: Path, heads: int) -> Listed:
    """Return `listed_words` of a words.csv that may be anybody's, for a run of `heads` heads.

    Raises:
        ValueError: if it is no such file, or has too many classes or columns.
    """
    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader([file.readline(MOST_IN_HEADER)], strict=True), [])
    if not NAMED <= len(names) <= NAMED + heads:
        most = f"{NAMED} to {NAMED + heads} columns, for the heads of the record"
        raise ValueError(f"expected {most}, got {len(names)}")
    texts = ("class", "word", "example")
    kinds = {name: str if name in texts else float for name in names}
    missing = {"interval": [""]}  # of a word of one text; a word may be "NA"
    options: Any = {"dtype": kinds, "keep_default_na": False, "na_values": missing}
    table = pd.read_csv(path, header=None, names=names, skiprows=1, index_col=False, **options)
    table["n"] = table["n"].astype(int)
    classes = table["class"].nunique()
    if classes > MOST_LISTS:
        raise ValueError(f"expected at most {MOST_LISTS:,} classes, got {classes:,}")
    if classes * len(names) > MOST_LISTS:
        table = table[names[:NAMED]]
    return {
        column: {
            from_csv_cell(label): [[*map(_restored, side)] for side in sides]
            for label, sides in of_classes.items()
        }
        for column, of_classes in listed_words(table).items()
    }


def _restored(row: list[Any]) -> list[Any]:
    return [from_csv_cell(cell) if isinstance(cell, str) else cell for cell in row]


def _rows(words: pd.DataFrame, column: str) -> list[list[Any]]:
    interval: Any = None
    if column == "mean":
        known = words["interval"].round(5).astype(object)
        interval = known.where(words["interval"].notna(), None)
    columns = words[["word", column, "interval", "n", "example"]].round({column: 5})
    rows: list[list[Any]] = columns.assign(interval=interval).values.tolist()
    return rows
