"""What is checked before training, each with a message that names the file, the column and the number of rows."""

import math
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from headscope.data.checks import (
    check_columns,
    warn_of_shared_texts,
    without_empty,
)
from headscope.data.config import DataConfig
from headscope.errors import DataError, UserWarningMessage

CONFIG = DataConfig(path="reviews.csv", test_path="exam.csv", text_column="review", label_column="stars")
PAIRS = DataConfig(path="reviews.csv", text_column="review", text_pair_column="answer", label_column="stars")


def reviews(texts: list[Any], stars: list[Any]) -> Dataset:
    return Dataset.from_dict({"review": texts, "stars": stars})


def splits(**rows: list[tuple[str, int]]) -> DatasetDict:
    columns = {
        role: {"text": [text for text, _ in pairs], "label": [label for _, label in pairs]}
        for role, pairs in rows.items()
    }
    return DatasetDict({role: Dataset.from_dict(data) for role, data in columns.items()})


LISTS = Dataset.from_dict({"review": ["a"], "stars": [[1, 2]]})


@pytest.mark.parametrize(
    ("config", "dataset", "message"),
    [
        (CONFIG, reviews(["a"], [1]).rename_column("review", "text"), "exam.csv, .*no column 'review' .*it has text"),
        (CONFIG, reviews(["a"], [1]).rename_column("stars", "label"), "no column 'stars' .*; it has review, label"),
        (PAIRS, reviews(["a", "b"], [1, 2]), r"reviews.csv, split test \(2 rows\): no column 'answer'"),
        (CONFIG, reviews([1, 2, 3], [1, 2, 3]), "column 'review' holds int64, not text"),
        (CONFIG, LISTS, "column 'stars' holds List; .*set data.multi_label=true"),
    ],
)
def test_a_missing_or_wrong_column_is_named_with_file_and_rows(
    config: DataConfig, dataset: Dataset, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_columns(dataset, "test", config)


@pytest.mark.parametrize("empty", [None, "", " \n\t\u3000"])
def test_empty_texts_are_counted_and_the_first_is_named(empty: str | None) -> None:
    dataset = reviews(["a", empty, "b", empty], [1, 2, 1, 2])
    with pytest.raises(DataError) as caught:
        without_empty(dataset, "train", CONFIG)
    assert str(caught.value) == (
        "reviews.csv, split train, column 'review': 2 of 4 rows are empty or null (the first is row 1); "
        "mend them or set data.drop_empty=true"
    )


@pytest.mark.parametrize("labels", [[1, None, 2], ["x", "", "y"], [1.0, math.nan, 2.0]])
def test_a_row_without_a_label_is_refused_like_one_without_a_text(labels: list[Any]) -> None:
    with pytest.raises(DataError, match=r"exam\.csv, split test, column 'stars': 1 of 3 rows are empty or null"):
        without_empty(reviews(["a", "b", "c"], labels), "test", CONFIG)


def test_rows_without_text_or_label_are_dropped_if_wished() -> None:
    columns = {
        "review": ["a", None, "c", "d", "e"],
        "answer": ["A", "B", " ", "D", "E"],
        "stars": [1, 2, 3, None, 5],
    }
    kept = without_empty(Dataset.from_dict(columns), "train", DataConfig(**vars(PAIRS) | {"drop_empty": True}))
    assert kept.to_list() == [
        {"review": "a", "answer": "A", "stars": 1},
        {"review": "e", "answer": "E", "stars": 5},
    ]


def test_a_split_of_which_nothing_is_left_is_refused() -> None:
    dropping = DataConfig(**vars(CONFIG) | {"drop_empty": True})
    with pytest.raises(DataError, match=r"exam\.csv, split test: no rows to use; 2 were dropped"):
        without_empty(reviews(["", " "], [1, 2]), "test", dropping)
    with pytest.raises(DataError, match=r"reviews\.csv, split train: no rows to use; 0 were dropped"):
        without_empty(reviews(["a"], [1]).select([]), "train", CONFIG)


def test_texts_that_stand_in_two_splits_are_counted_in_a_warning() -> None:
    train = [("same", 0), ("other", 1)]
    data = splits(train=train, validation=[("same", 1), ("Same", 0)], test=[("other", 1), ("same", 0), ("new", 0)])
    with pytest.warns(UserWarningMessage) as caught:
        assert warn_of_shared_texts(data, CONFIG) == 3
    (warning,) = caught
    assert str(warning.message) == ("reviews.csv: texts that also stand in train: 1 of 2 in validation, 2 of 3 in test")


def test_a_pair_is_shared_only_if_both_of_its_texts_are() -> None:
    pairs = {"train": [("a", "b")], "validation": [("a", "c"), ("b", "a")], "test": [("a", "b")]}
    data = DatasetDict(
        {role: Dataset.from_list([{"text": a, "text_pair": b} for a, b in rows]) for role, rows in pairs.items()}
    )
    with pytest.warns(UserWarningMessage, match="in train: 1 of 1 in test"):
        assert warn_of_shared_texts(data, PAIRS) == 1
