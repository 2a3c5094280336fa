"""From a source to three splits: columns, labels of every kind, splits that are missing, and what is rejected."""

import math
import re
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.config import DataConfig
from headscope.data.corpus import (
    Corpus,
    Split,
    conflicting_labels,
    load_corpus,
    load_split,
    read_split,
    warn_of_repeated_texts,
)
from headscope.errors import DataError, UserWarningMessage

NAMES = ClassLabel(names=["bad", "fair", "good"])


def texts(count: int, start: int = 0) -> list[str]:
    """Texts that are no near-duplicates of each other."""
    return [
        f"text {chr(ord('a') + row // 26)}{chr(ord('a') + row % 26)}"
        for row in range(start, start + count)
    ]


def table(labels: list[Any], start: int = 0, **columns: list[Any]) -> Dataset:
    return Dataset.from_dict({"text": texts(len(labels), start), "label": labels, **columns})


def config(folder: Path, train: Dataset, **settings: Any) -> DataConfig:
    """Write the splits as parquet, which keeps ClassLabels, and return the configuration that reads them."""
    for key, dataset in {"path": train, **settings}.items():
        if isinstance(dataset, Dataset):
            settings[key] = str(folder / f"{key}.parquet")
            dataset.to_parquet(settings[key])
    return DataConfig(cache_dir=str(folder), **settings)


def rows(corpus: Corpus, role: str) -> list[tuple[str, str]]:
    split = corpus.splits[role]
    return [
        (text, corpus.labels[label])
        for text, label in zip(split["text"], split["label"], strict=True)
    ]


def rejected(settings: DataConfig) -> str:
    with pytest.raises(DataError) as caught:
        load_corpus(settings)
    return str(caught.value).removeprefix(str(Path(settings.path).parent) + "/")


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        ([10, 9], ["10", "9"], ["9", "10"]),
        (["10", " 9"], ["10", "9"], ["9", "10"]),
        (["10", "09"], ["10", "09"], ["09", "10"]),
        ([-1, 1], ["-1", "1"], ["-1", "1"]),
        ([3.0, 1.0], ["3", "1"], ["1", "3"]),
        ([True, False], ["true", "false"], ["false", "true"]),
        (["True", "false"], ["true", "false"], ["false", "true"]),
        (["TRUE", "unknown"], ["TRUE", "unknown"], ["TRUE", "unknown"]),
        (
            ["good", "good ", " bad", "日本"],
            ["good", "good", "bad", "日本"],
            ["bad", "good", "日本"],
        ),
    ],
)
def test_labels_of_every_kind_become_indices_into_their_names(
    tmp_path: Path, labels: list[Any], names: list[str], classes: list[str]
) -> None:
    corpus = load_corpus(config(tmp_path, table(labels * (40 // len(labels)))))
    assert corpus.labels == classes
    found = [row for role in ("train", "validation", "test") for row in rows(corpus, role)]
    assert dict(found) == dict(zip(texts(40), names * (40 // len(labels)), strict=True))


def test_true_and_false_have_one_spelling_in_every_file(tmp_path: Path) -> None:
    """A model that learned from jsonl is scored on what pandas wrote as csv, and the other way."""
    for labels in ([True, False], ["True", "False"], ["true", "FALSE"]):
        split, _ = load_split(config(tmp_path, table(labels)), None, ["false", "true"])
        assert list(split["label"]) == [1, 0]


def test_splits_may_name_the_same_classes_in_other_ways(tmp_path: Path) -> None:
    train = table([0, 1, 2] * 5).cast_column("label", NAMES)
    reordered = table([0, 2], 20).cast_column("label", ClassLabel(names=["good", "fair", "bad"]))
    strings = table(["fair", "good"], 30)
    corpus = load_corpus(config(tmp_path, train, validation_path=reordered, test_path=strings))
    assert [label for _, label in rows(corpus, "validation")] == ["good", "bad"]
    assert [label for _, label in rows(corpus, "test")] == ["fair", "good"]


def test_a_split_without_labels_is_rejected_with_advice(tmp_path: Path) -> None:
    train = table([0, 1] * 20).cast_column("label", NAMES)
    secret = table([-1] * 5, 50).cast_column("label", NAMES)
    assert rejected(config(tmp_path, train, test_path=secret)) == (
        "test_path.parquet, split test, column 'label': 5 of 5 rows have unknown labels -1; "
        "expected bad, fair, good (-1 often marks a split without labels: name another split)"
    )


def test_missing_splits_are_cut_from_train_each_as_a_share_of_all(tmp_path: Path) -> None:
    corpus = load_corpus(
        config(tmp_path, table(["x", "y"] * 100), validation_share=0.2, test_share=0.1)
    )
    assert corpus.facts["sizes"] == {"train": 140, "test": 20, "validation": 40}
    assert (corpus.facts["test cut from train"], corpus.facts["validation cut from train"]) == (
        20,
        40,
    )
    for role, size in corpus.facts["sizes"].items():
        assert Counter(label for _, label in rows(corpus, role)) == {"x": size / 2, "y": size / 2}
    assert sorted(row for role in corpus.splits for row, _ in rows(corpus, role)) == sorted(
        texts(200)
    )


def test_validation_is_cut_from_train_and_never_from_the_test_split(tmp_path: Path) -> None:
    test = table(["x", "y"] * 10, 300)
    settings = config(tmp_path, table(["x", "y"] * 50), test_path=test, validation_split=None)
    corpus = load_corpus(settings)
    assert [row for row, _ in rows(corpus, "test")] == texts(20, 300)
    parts = [{row for row, _ in rows(corpus, role)} for role in ("train", "validation")]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(texts(100))
    assert len(parts[1]) == 10


SAME = {"text": ["same", "Same", "same!", "same 1"], "label": ["x", "y"] * 2}
TWO = {
    "text": [f"{'good' if row % 2 else 'bad'} film {row}" for row in range(120)],
    "label": ["x", "y"] * 60,
}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            table(["x"] * 9),
            "path.parquet, column 'label': train (9 rows) has too few classes: expected two or more, got x",
        ),
        (
            table([f"id {row}" for row in range(30)]),
            "path.parquet, column 'label': train (30 rows) has 30 labels, 30 of them once, such as id 0, id 1, id 10; "
            "that looks like an id of each row: name the column with the label, data.label_column=...",
        ),
        (
            Dataset.from_dict(SAME),
            "path.parquet, split train (4 rows): only 1 different texts of 2 classes, too few to cut a test split",
        ),
        (
            Dataset.from_dict(TWO),
            "(120 rows): only 2 different texts of 2 classes, too few to cut a test split",
        ),
        (
            table([0.5, 1.0] * 9),
            "split train, column 'label', row 0: expected integers or strings, got [0.5]",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_rejected_before_anything_is_cut(
    tmp_path: Path, train: Dataset, message: str
) -> None:
    assert message in rejected(config(tmp_path, train))


def test_the_file_of_the_split_at_fault_is_the_one_that_is_named(tmp_path: Path) -> None:
    settings = config(tmp_path, table(["x", "y"] * 20), validation_path=table(["x", "z"], 50))
    message = "validation_path.parquet, column 'label': validation has labels that train lacks: z"
    assert rejected(settings) == message


def test_other_data_is_labelled_as_the_model_knows_its_classes(tmp_path: Path) -> None:
    settings = config(tmp_path, table(["y", "x", "y"]))
    dataset, name = load_split(settings, None, ["z", "y", "x"])
    assert (name, list(dataset["label"])) == ("train", [1, 2, 1])
    assert load_split(settings, "train", ["x", "y"])[0]["label"][:] == [1, 0, 1]
    with pytest.raises(
        DataError,
        match=r"split train, column 'label': 2 of 3 rows have unknown labels y; expected x, z$",
    ):
        load_split(settings, None, ["x", "z"])


def test_one_split_of_several_is_loaded_and_the_others_are_not_looked_at(tmp_path: Path) -> None:
    settings = config(tmp_path, table([None, "x"]), test_path=table(["x", "y"], 50), limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset, name = load_split(settings, None, ["x", "y"])
    assert (name, len(dataset)) == ("test", 1)
    with pytest.raises(DataError, match="no split 'validation'; it has train, test"):
        load_split(settings, "validation", ["x", "y"])


def test_of_a_very_long_text_the_beginning_alone_is_kept_and_labels_stay(tmp_path: Path) -> None:
    train = table([["x"], ["x", "y"], [], ["y"]] * 10)
    long = Dataset.from_dict(
        {"text": ["word " * 40_000, "short one", "\u3042" * 150_000], "label": [["y"], [], ["x"]]}
    )
    settings = config(tmp_path, train, test_path=long, multi_label=True, validation_share=0.2)
    for found in (load_corpus(settings), None):
        split = found.splits["test"] if found else load_split(settings, "test", ["x", "y"])[0]
        assert [len(text) for text in split["text"]] == [99_994, 9, 100_000]
        assert list(split["label"]) == [[0, 1], [0, 0], [1, 0]]
        assert found is None or found.facts["texts of which the beginning alone is read"] == {
            "test": 2
        }


def test_a_class_with_one_training_text_is_learned_and_left_out_of_validation(
    tmp_path: Path,
) -> None:
    train = table([*["x", "y"] * 20, "platinum"])
    test = table(["x", "y", "platinum"], 200)
    corpus = load_corpus(config(tmp_path, train, test_path=test))
    assert corpus.facts["classes with one training text"] == ["platinum"]
    counts = {role: Counter(label for _, label in rows(corpus, role)) for role in corpus.splits}
    assert [counts[role]["platinum"] for role in ("train", "validation", "test")] == [1, 0, 1]


CONFIG = DataConfig(
    path="reviews.csv", test_path="exam.csv", text_column="review", label_column="stars"
)
PAIRS = DataConfig(
    path="reviews.csv", text_column="review", text_pair_column="answer", label_column="stars"
)


def reviews(texts: list[Any], stars: list[Any]) -> Dataset:
    return Dataset.from_dict({"review": texts, "stars": stars})


def splits(**rows: list[tuple[str, int]]) -> DatasetDict:
    columns = {
        role: {"text": [text for text, _ in pairs], "label": [label for _, label in pairs]}
        for role, pairs in rows.items()
    }
    return DatasetDict({role: Dataset.from_dict(data) for role, data in columns.items()})


LISTS = Dataset.from_dict({"review": ["a"], "stars": [[1, 2]]})


def read(dataset: Dataset, config: DataConfig, split: str = "test") -> Split:
    return read_split(DatasetDict({split: dataset}), split, config)


@pytest.mark.parametrize(
    ("config", "dataset", "message"),
    [
        (
            CONFIG,
            reviews(["a"], [1]).rename_column("review", "text"),
            "exam.csv, .*no column 'review'; it has text, stars",
        ),
        (
            CONFIG,
            reviews(["a"], [1]).rename_column("stars", "label"),
            "no column 'stars'; it has review, label",
        ),
        (
            PAIRS,
            reviews(["a", "b"], [1, 2]),
            r"reviews.csv, split test \(2 rows\): no column 'answer'",
        ),
        (CONFIG, reviews([1, 2, 3], [1, 2, 3]), "column 'review': expected text, got int64"),
        (CONFIG, LISTS, "column 'stars': expected .* with data.multi_label=true, .*got List"),
    ],
)
def test_a_missing_or_wrong_column_is_named_with_file_and_rows(
    config: DataConfig, dataset: Dataset, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(dataset, config)


@pytest.mark.parametrize("column", ["review", "stars"])
def test_strings_that_are_not_utf8_are_rejected_with_their_row(column: str) -> None:
    ends = pa.py_buffer(np.array([0, 2, 4, 5], np.int32).tobytes())
    strings = pa.StringArray.from_buffers(3, ends, pa.py_buffer(b"ab\xff\xfec"))
    columns = {"review": ["a", "b", "c"], "stars": ["x", "y", "z"]} | {column: strings}
    message = (
        r"split test \(3 rows\): .*Invalid UTF8 sequence at string index 1; fix or drop the row"
    )
    with pytest.raises(DataError, match=message):
        read(Dataset(pa.table(columns)), CONFIG)


@pytest.mark.parametrize("empty", [None, "", " \n\t\u3000", "\u200b\ufeff \u2060"])
def test_empty_texts_are_counted_and_the_first_is_named(empty: str | None) -> None:
    dataset = reviews(["a", empty, "b", empty], [1, 2, 1, 2])
    with pytest.raises(DataError) as caught:
        read(dataset, CONFIG, "train")
    assert str(caught.value) == (
        "reviews.csv, split train, column 'review': 2 of 4 rows are empty or null (the first is row 1); "
        "fix them or set data.drop_empty=true"
    )


@pytest.mark.parametrize("labels", [[1, None, 2], ["x", "", "y"], [1.0, math.nan, 2.0]])
def test_a_row_without_a_label_is_rejected_like_one_without_a_text(labels: list[Any]) -> None:
    message = r"exam\.csv, split test, column 'stars': 1 of 3 rows are empty or null"
    with pytest.raises(DataError, match=message):
        read(reviews(["a", "b", "c"], labels), CONFIG)


def test_rows_without_text_or_label_are_dropped_if_wished() -> None:
    columns = {
        "review": ["a", None, "c", "d", "e"],
        "answer": ["A", "B", " ", "D", "E"],
        "stars": [1, 2, 3, None, 5],
    }
    message = "dropped 3 of 5 rows with an empty 'review' or 'answer' or 'stars'"
    dropping = replace(PAIRS, drop_empty=True)
    with pytest.warns(UserWarningMessage, match=message):
        split = read(Dataset.from_dict(columns), dropping, "train")
    assert split.with_labels(["1", "5"], dropping).to_list() == [
        {"text": "a", "text_pair": "A", "label": 0},
        {"text": "e", "text_pair": "E", "label": 1},
    ]


def test_a_split_of_which_nothing_is_left_is_rejected() -> None:
    for dataset, count in ((reviews(["", " "], [1, 2]), 2), (reviews(["a"], [1]).select([]), 0)):
        message = rf"exam\.csv, split test: dropped {count} of {count} rows .*; none is left"
        with pytest.raises(DataError, match=message):
            read(dataset, replace(CONFIG, drop_empty=True))


def test_the_columns_of_a_pair_may_have_each_other_s_names(tmp_path: Path) -> None:
    train = table(["x", "y"] * 20, text_pair=texts(40, 100))
    settings = config(tmp_path, train, text_column="text_pair", text_pair_column="text")
    split = load_corpus(settings).splits["train"]
    assert set(split["text"]) <= set(texts(40, 100))
    assert set(split["text_pair"]) <= set(texts(40))


def test_labels_that_look_alike_are_told_and_stay_apart(tmp_path: Path) -> None:
    labels = [
        "Good",
        "good",
        "\uff27ood",
        "1",
        "01",
        "1.0",
        "cafe\u0301",
        "caf\u00e9",
        "bad",
        "1.5",
    ]
    settings = config(tmp_path, table(labels * 10))
    found = ["'01' / '1' / '1.0'", "'Good' / 'good' / '\uff27ood'", "'cafe\u0301' / 'caf\u00e9'"]
    said = f"column 'label': labels differ in spelling alone, and are classes of their own: {', '.join(found)}"
    with pytest.warns(UserWarningMessage, match=re.escape(said)):
        corpus = load_corpus(settings)
    assert corpus.labels == sorted(labels)
    assert corpus.facts["labels that differ in spelling alone"] == found


def test_texts_that_stand_in_two_splits_are_counted_in_a_warning() -> None:
    train = [("same", 0), ("other", 1)]
    data = splits(
        train=train,
        validation=[("same", 1), ("Same", 0)],
        test=[("other", 1), ("same", 0), ("new", 0)],
    )
    with pytest.warns(UserWarningMessage) as caught:
        facts = warn_of_repeated_texts(data, CONFIG)
    assert facts == {"texts also in train": 3, "texts under different labels": 3}
    assert [str(warning.message) for warning in caught] == [
        "reviews.csv: 3 texts of validation and test also stand in train",
        "reviews.csv: 3 of 7 rows hold a text that stands under different labels, such as 'same'",
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.lists(st.integers(0, 1), min_size=2, max_size=2)),
        min_size=1,
    )
)
def test_a_text_is_under_different_labels_if_another_row_has_it_with_other_ones(
    rows: list[tuple[str, list[int]]],
) -> None:
    texts = np.unique([text for text, _ in rows], return_inverse=True)[1]
    table = np.array([labels for _, labels in rows])
    for labels in (table, table[:, 0]):
        kinds = [(text, str(label)) for (text, _), label in zip(rows, labels, strict=True)]
        wanted = [len({kind for kind in kinds if kind[0] == text}) > 1 for text, _ in kinds]
        assert conflicting_labels(texts, labels).tolist() == wanted


def test_a_pair_is_shared_only_if_both_of_its_texts_are() -> None:
    pairs = {"train": [("a", "b")], "validation": [("a", "c"), ("b", "a")], "test": [("a", "b")]}
    data = DatasetDict(
        {
            role: Dataset.from_list([{"text": a, "text_pair": b, "label": 0} for a, b in rows])
            for role, rows in pairs.items()
        }
    )
    with pytest.warns(
        UserWarningMessage, match="1 texts of validation and test also stand in train"
    ):
        assert warn_of_repeated_texts(data, PAIRS) == {
            "texts also in train": 1,
            "texts under different labels": 0,
        }
