"""Texts that a page offers: some that the run is sure of, some that it gets wrong, some unsure."""

from typing import Any

import numpy as np
from datasets import Dataset
from pandas import DataFrame

from headscope.pages.live import Example, Kind
from headscope.record.schema import label_text
from headscope.runs.run import Run
from headscope.runs.texts import texts_and_labels

SHORTEST = 20  # characters of an example, where there are such texts
LONGEST = 600


def choose_examples(run: Run, split: Dataset, count: int) -> list[Example]:
    """Return texts of a split in thirds: confident and right, most wrong, and least sure.

    Of right ones the classes take turns. Short texts come first; each text stands once.
    """
    texts, labels = texts_and_labels(split, run.objective, run.labels)
    predictions = run.predict(texts)
    shares = np.sort([[*prediction.probabilities.values()] for prediction in predictions])  # [N, C]
    sure = shares[:, -1] - shares[:, -2]  # the distance of the nearest two classes
    if run.config.data.multi_label:
        sure = np.abs(shares - 0.5).min(axis=1)  # of a probability from its threshold
    table = DataFrame({"label": [*map(label_text, labels)], "sure": sure})
    table["is_right"] = table["label"] == [prediction.label for prediction in predictions]
    table["is_odd"] = [not SHORTEST <= len("".join(text)) <= LONGEST for text in texts]
    surest = table.sort_values(["is_odd", "sure"], ascending=[True, False])
    turns = surest[surest["is_right"]].groupby("label").cumcount()
    orders: dict[Kind, Any] = {
        "right": turns.sort_values(kind="stable").index,
        "wrong": surest.index[~surest["is_right"]],
        "unsure": table.sort_values(["is_odd", "sure"]).index,
    }
    chosen: dict[int, Kind] = {}
    for place, (kind, order) in enumerate(orders.items()):
        free = [row for row in order if row not in chosen]
        chosen |= dict.fromkeys(free[: (count + 2 - place) // 3], kind)
    return [Example(kind, table["label"][row], texts[row]) for row, kind in chosen.items()]
