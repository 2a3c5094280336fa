"""The words that add most to each class, as words.csv of a run has them; see `heads.words`."""

from typing import Any

import numpy as np
import pandas as pd

LISTED = 20  # words of each class, for it and against it
LEAST_TEXTS = 3  # in which a word occurs that is listed, if any word does
NAMED = 6  # columns before those of the heads: class, word, mean, interval, n, example
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


def _rows(words: pd.DataFrame, column: str) -> list[list[Any]]:
    interval: Any = None
    if column == "mean":
        known = words["interval"].round(5).astype(object)
        interval = known.where(words["interval"].notna(), None)
    columns = words[["word", column, "interval", "n", "example"]].round({column: 5})
    rows: list[list[Any]] = columns.assign(interval=interval).values.tolist()
    return rows
