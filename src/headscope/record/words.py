"""The words that add most to each class, as words.csv of a run has them; see `heads.words`."""

from typing import Any

import pandas as pd

LISTED = 20  # words of each class, for it and against it
NAMED = 6  # columns before those of the heads: class, word, sum, mean, texts, example
Listed = dict[str, dict[str, list[list[list[Any]]]]]


def listed_words(table: pd.DataFrame) -> Listed:
    """Return for the sum and each head, and each class: the words for it and those against it.

    A word is [word, value, texts, example], the largest first.
    """
    found: Listed = {}
    for column in ["sum", *table.columns[NAMED:]]:
        found[column] = {}
        for label, own in table.groupby("class", sort=False):
            ranked = own.sort_values(column, key=abs, ascending=False, kind="stable")
            columns = ranked[["word", column, "texts", "example"]].round({column: 3})
            sides = [columns[ranked[column] > 0], columns[ranked[column] < 0]]
            found[column][str(label)] = [side.head(LISTED).values.tolist() for side in sides]
    return found
