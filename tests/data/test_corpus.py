"""From a source to three splits: columns, labels of every kind, splits that are missing, and what is rejected."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, LargeList, List, Value

from headscope.data.columns import class_counts, numbers
from headscope.data.corpus import Corpus, load_corpus, load_split, warn_of_repeated_texts
from headscope.data.splits import Rows, cached_keys
from headscope.ground.errors import DataError, UserWarningMessage
from headscope.settings.config import DataConfig

NAMES = ClassLabel(names=["bad", "fair", "good"])
XYZ = ClassLabel(names=["x", "y", "z"])
SETS: list[list[str]] = [["x", "z"], [], ["y"], ["z"], ["x", "y", "z"]]
CONFIG = DataConfig(path="reviews.csv")
Read = Callable[..., DataConfig]


def texts(count: int, start: int = 0) -> list[str]:
    """Texts that are no near-duplicates of each other."""
    letters = [chr(ord("a") + number) for number in range(26)]
    return [f"text {letters[row // 26]}{letters[row % 26]}" for row in range(start, start + count)]


def table(labels: list[Any], kind: Any = None, start: int = 0, **columns: list[Any]) -> Dataset:
    content = {"text": texts(len(labels), start), "label": labels} | columns
    features = Features({"text": Value("string"), "label": kind}) if kind else None
    return Dataset.from_dict(content, features)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that makes splits the source of all data, and returns the settings."""

    def made(train: Dataset, test: Dataset | None = None, **settings: Any) -> DataConfig:
        splits = {"train": train, **({} if test is None else {"test": test})}
        monkeypatch.setattr("headscope.data.corpus.load_source", lambda _: DatasetDict(splits))
        return DataConfig(path="reviews.csv", **settings)

    return made


def rows(corpus: Corpus) -> dict[str, Any]:
    """Return text -> the name of its class, or the names of its classes."""
    found: dict[str, Any] = {}
    for split in corpus.splits.values():
        for row in split:
            label = row["label"]
            found[row["text"]] = corpus.labels[label] if isinstance(label, int) else {
                name for name, has in zip(corpus.labels, label, strict=True) if has
            }  # fmt: skip
    return found


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
        (["TRUE", "unknown"], ["true", "unknown"], ["true", "unknown"]),
        (["1", "1.0", "10", "2.0"], ["1", "1", "10", "2"], ["1", "2", "10"]),
        (["1.0", "2.0"], ["1.0", "2.0"], ["1.0", "2.0"]),
        (["1", "1.0", "1.5", "x"], ["1", "1.0", "1.5", "x"], ["1", "1.0", "1.5", "x"]),
        (["[spam]", "{ham}"], ["[spam]", "{ham}"], ["[spam]", "{ham}"]),
        (
            ["good", "good ", " bad", "日本"],
            ["good", "good", "bad", "日本"],
            ["bad", "good", "日本"],
        ),
    ],
)
def test_labels_of_every_kind_become_indices_into_their_names(
    source: Read, labels: list[Any], names: list[str], classes: list[str]
) -> None:
    times = 40 // len(labels)
    corpus = load_corpus(source(table(labels * times)))
    assert corpus.labels == classes
    assert rows(corpus) == dict(zip(texts(40), names * times, strict=True))


@pytest.mark.parametrize(
    ("cells", "kind", "names", "separator"),
    [
        (SETS, List(Value("string")), "xyz", ";"),
        (SETS, LargeList(Value("large_string")), "xyz", ";"),
        ([[XYZ.str2int(name) for name in names] for names in SETS], List(XYZ), "xyz", ";"),
        ([" ;".join(names) for names in SETS], None, "xyz", ";"),
        ([" | ".join(names) for names in SETS], None, "xyz", "|"),
        ([json.dumps(names) for names in SETS], None, "xyz", ";"),
        ([json.dumps({"choices": names}) if names else "" for names in SETS], None, "xyz", ";"),
    ],
)
def test_a_text_with_several_labels_has_a_one_at_each_class(
    source: Read, cells: list[Any], kind: Any, names: str, separator: str
) -> None:
    config = source(table(cells * 20, kind), multi_label=True, label_separator=separator)
    corpus = load_corpus(config)
    assert corpus.labels == [*names]
    wanted = [{names["xyz".index(name)] for name in each} for each in SETS] * 20
    assert rows(corpus) == dict(zip(texts(100), wanted, strict=True))


@pytest.mark.parametrize(
    ("test", "names"),
    [
        (table([0, 2], ClassLabel(names=["good", "fair", "bad"]), 90), ["good", "bad"]),
        (table(["fair", "good"], None, 90), ["fair", "good"]),
    ],
)
def test_a_split_may_name_the_same_classes_in_another_way(
    source: Read, test: Dataset, names: list[str]
) -> None:
    corpus = load_corpus(source(table([0, 1, 2] * 5, NAMES), test))
    assert [corpus.labels[label] for label in corpus.splits["test"]["label"]] == names


@pytest.mark.parametrize(
    ("labels", "classes", "found", "settings"),
    [
        (["y", "x", "y"], ["z", "y", "x"], [1, 2, 1], {}),
        ([True, False], ["false", "true"], [1, 0], {}),
        (["True", "FALSE"], ["false", "true"], [1, 0], {}),
        (["1.0", "2"], ["1", "2"], [0, 1], {}),
        (["1", "2.0"], ["1.0", "2.0"], [0, 1], {}),
        (["3", "", "5;3"], ["3", "5"], [[1, 0], [0, 0], [1, 1]], {"multi_label": True}),
        ([["y", "x"], [], ["y"]], ["z", "y", "x"], [[0, 1, 1], [0, 0, 0], [0, 1, 0]], {"multi_label": True}),
    ],
)  # fmt: skip
def test_other_data_is_labelled_as_the_model_knows_its_classes(
    source: Read, labels: list[Any], classes: list[str], found: list[Any], settings: dict[str, Any]
) -> None:
    """So a model that learned true and false from jsonl is scored on a csv file of pandas."""
    config = source(table(labels), **settings)
    dataset, name = load_split(config, None, classes)
    assert (name, dataset["label"][:]) == ("train", found)
    with pytest.raises(DataError, match=r"unknown labels .*; expected other$"):
        load_split(config, "train", ["other"])


def test_one_split_of_several_is_loaded_and_the_others_are_not_looked_at(source: Read) -> None:
    config = source(table([None, "x"]), table(["x", "y"], None, 50), limit=1)
    dataset, name = load_split(config, None, ["x", "y"])
    assert (name, len(dataset)) == ("test", 1)
    with pytest.raises(DataError, match="no split 'validation'; it has train, test"):
        load_split(config, "validation", ["x", "y"])


def test_lists_of_numbers_are_classes(source: Read) -> None:
    config = source(table([[1, 0], [0], [2]]), multi_label=True)
    found = load_split(config, None, ["0", "1", "2"])[0]["label"]
    assert [*found] == [[1, 1, 0], [1, 0, 0], [0, 0, 1]]


SEVERAL = {"multi_label": True}
PAIRS = {"text_pair_column": "answer"}
EMPTY = "(first in row 1), counted from 0; fix them or set data.drop_empty=true"
SAME = Dataset.from_dict({"text": ["same", "Same", "same!", "same 1"], "label": ["x", "y"] * 2})
TWO = table(["x", "y"] * 60, text=[f"{('bad', 'good')[row % 2]} film {row}" for row in range(120)])
BROKEN = pa.StringArray.from_buffers(
    3, pa.py_buffer(np.array([0, 2, 4, 5], np.int32).tobytes()), pa.py_buffer(b"ab\xff\xfec")
)
REJECTED: list[tuple[Dataset, dict[str, Any], str]] = [
    (table(["x"] * 9), {}, "reviews.csv, column 'label': train (9 rows) has too few classes: expected two or more, got x"),
    (table([f"id {row}" for row in range(30)]), {}, "train (30 rows) has 30 labels, 30 of them once, such as id 0, id 1, id 10; that looks like an id of each row: name the column with the label, data.label_column=..."),
    (SAME, {}, "split train (4 rows): only 1 different texts of 2 classes, too few to cut a test split"),
    (TWO, {}, "(120 rows): only 2 different texts of 2 classes, too few to cut a test split"),
    (table([0.5, 1.0] * 9), {}, "split train, column 'label': expected integers or strings, each once,"),
    (table(["x"]).rename_column("text", "body"), {}, "reviews.csv, split train (1 rows): no column 'text' for data.text_column; it has body, label"),
    (table(["x"]), {"label_column": "stars"}, "no column 'stars' for data.label_column; it has text, label (a table's first line"),
    (table(["x"]), PAIRS, "no column 'answer'"),
    (table(["x"], text=[1]), {}, "column 'text': expected text, got int64"),
    (table([["x", "y"]]), {}, "column 'label': expected integers, strings or, with data.multi_label=true, lists of them, got List"),
    (Dataset(pa.table({"text": BROKEN, "label": list("xyz")})), {}, "Invalid UTF8 sequence at string index 1; fix or drop the row"),
    (Dataset(pa.table({"text": list("xyz"), "label": BROKEN})), {}, "Invalid UTF8 sequence at string index 1; fix or drop the row"),
    *((table(list("xyxy"), text=["a", empty, "b", empty]), {}, f"2 of 4 rows have empty cells: 2 in column 'text' {EMPTY}")
      for empty in (None, "", " \n\t\u3000", "\u200b\ufeff \u2060")),
    *((table(labels), {}, f"1 of 3 rows have empty cells: 1 in column 'label' {EMPTY}")
      for labels in ([1, None, 2], ["x", "", "y"], [1.0, math.nan, 2.0])),
    *((table(labels), SEVERAL, f"1 of 3 rows have empty cells: 1 in column 'label' {EMPTY}")
      for labels in ([["x"], None, ["y", "x"]], [["x"], ["y", None], []], [["x"], ["y", " "], []])),
    (table(["", " "], text=["", " "]), {"drop_empty": True}, "2 of 2 rows have empty cells: 2 in column 'text' (first in row 0), 2 in column 'label' (first in row 0); none is left"),
    (table(["x", "y"] * 20), SEVERAL, "no text of train has two labels; leave data.multi_label out, or"),
    (table([1, 2] * 20), SEVERAL, "no text of train has two labels"),
    (table(["a,b", "b", "", "c"] * 20), SEVERAL, "data.label_separator=... (it is ';')"),
    *((table(labels), SEVERAL, f"got {labels[0]}; 0 or 1 for each class is not read: write the classes that a text has")
      for labels in ([[1, 0, 0], [0, 1]], [[1, 0], [0, 1]], [[1.0, 0.0], [0.0, 1.0]], [[True, False], None], [[1, 1, 0], [0, 0, 0]])),
    *((table([cell, "x;y"] * 9), SEVERAL, f"cells hold lists or objects as text: {cell}; write them as JSON, [\"a\", \"b\"], or join the labels by ';'")
      for cell in ("['a', 'b']", '["a"]', "[1, 0]", "[1 0]", "[]", '{"choices": ["a"]}')),
    *((table([cell, "[]"] * 9), SEVERAL, "cells hold lists or objects as text: ") for cell in ('{"choices": "a"}', '[["a"]]', '["a", {}]')),
    (table(['["a"]', '["b"]'] * 9), {}, 'cells hold lists or objects as text: ["a"]; set data.multi_label=true'),
    (table(["[1, 0]", "[0, 1]"] * 9), SEVERAL, "0 or 1 for each class is not read"),
    (table([[1.0], [1.0, 0.5]]), SEVERAL, "got [1.0, 0.5]"),
    (table([[["x"]], [["y"]]]), SEVERAL, "column 'label': expected integers, strings or"),
    (table([[], []]), SEVERAL, "no text has a label"),
    (table(["", "", ""]), SEVERAL, "no text has a label"),
    (table([["x"], [], ["x"], []]), SEVERAL, "train (4 rows) has too few classes: expected two or more, got x"),
]  # fmt: skip


@pytest.mark.parametrize(("train", "settings", "message"), REJECTED)
def test_what_cannot_be_trained_on_is_rejected_with_what_to_do(
    source: Read, train: Dataset, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_corpus(source(train, **settings))
    assert str(caught.value).startswith("reviews.csv, ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (table([-1] * 5, NAMES, 50), "exam.csv, split test, column 'label': 5 of 5 rows have unknown labels -1; expected bad, fair, good (-1 often marks a split without labels: name another split)"),
        (table(["bad", "worst"], None, 50), "exam.csv, split test, column 'label': 1 of 2 rows have unknown labels worst; expected bad, fair, good"),
    ],
)  # fmt: skip
def test_the_file_of_the_split_at_fault_is_the_one_that_is_named(
    source: Read, test: Dataset, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_corpus(source(table([0, 1, 2] * 20, NAMES), test, test_path="exam.csv"))
    assert str(caught.value) == message
    with pytest.raises(DataError, match=r"^exam\.csv, column 'label': test has labels that train"):
        load_corpus(source(table(["x", "y"] * 20), table(["z"], None, 50), test_path="exam.csv"))


@pytest.mark.parametrize(
    ("train", "settings", "column"),
    [
        (table(["x", "y", None, "x"] * 20), {}, "label"),
        (table([["x", "y"], None, [], ["y"]] * 20), SEVERAL, "label"),
        (table(["x", "y"] * 40, answer=["A", "B", "C", " "] * 20), PAIRS, "answer"),
    ],
)  # fmt: skip
def test_rows_with_a_gap_are_dropped_if_wished(
    source: Read,
    train: Dataset,
    settings: dict[str, Any],
    column: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = source(train, drop_empty=True, **settings)
    message = f"20 of 80 rows have empty cells: 20 in column '{column}' .*; they are dropped"
    with pytest.warns(UserWarningMessage, match=message):
        corpus = load_corpus(config)
    assert "Flattening" not in capfd.readouterr().err  # no bar of `datasets`
    assert corpus.facts["rows dropped as empty"] == {"train": 20}
    assert sum(corpus.facts["sizes"].values()) == 60


def test_missing_splits_are_cut_from_train_each_as_a_share_of_all(source: Read) -> None:
    config = source(table(["x", "y"] * 100), validation_share=0.2, test_share=0.1)
    corpus = load_corpus(config)
    sizes = {"train": 140, "test": 20, "validation": 40}
    assert corpus.facts["sizes"] == sizes
    assert corpus.facts["test cut from train"] == 20
    assert corpus.facts["validation cut from train"] == 40
    for role, size in sizes.items():
        assert Counter(corpus.splits[role]["label"]) == {0: size / 2, 1: size / 2}
    assert sorted(rows(corpus)) == sorted(texts(200))


def test_validation_is_cut_from_train_and_never_from_the_test_split(source: Read) -> None:
    test = table(["x", "y"] * 10, None, 300)
    corpus = load_corpus(source(table(["x", "y"] * 50), test, validation_split=None))
    assert corpus.splits["test"]["text"][:] == texts(20, 300)
    train, validation = ({*corpus.splits[role]["text"]} for role in ("train", "validation"))
    assert not train & validation
    assert train | validation == set(texts(100))
    assert len(validation) == 10


def test_a_class_with_one_training_text_is_learned_and_left_out_of_validation(source: Read) -> None:
    train = table([*["x", "y"] * 20, "platinum"])
    with pytest.warns(UserWarningMessage, match="1 of 3 classes have fewer than 3 training texts"):
        corpus = load_corpus(source(train, table(["x", "y", "platinum"], None, 200)))
    counts = [[*corpus.splits[role]["label"]].count(0) for role in ("train", "validation", "test")]
    assert counts == [1, 0, 1]


def test_a_sample_may_lack_a_label_that_few_texts_have(source: Read) -> None:
    labels = [[f"rare {row // 2}", "x"] if row < 20 else SETS[row % 5] for row in range(200)]
    corpus = load_corpus(source(table(labels), limit=20, multi_label=True))
    assert corpus.facts["sizes"] == {"train": 20, "test": 20, "validation": 20}
    assert len(corpus.labels) == 13
    assert (numbers(corpus.splits["train"], "label").sum(axis=0) == 0).any()


def test_the_columns_of_a_pair_may_have_each_other_s_names(source: Read) -> None:
    train = table(["x", "y"] * 20, text_pair=texts(40, 100))
    split = load_corpus(source(train, text_column="text_pair", text_pair_column="text")).splits
    assert set(split["train"]["text"]) <= set(texts(40, 100))
    assert set(split["train"]["text_pair"]) <= set(texts(40))


def test_labels_are_read_as_a_table_however_they_are_stored(source: Read) -> None:
    dataset, _ = load_split(source(table(SETS * 3), multi_label=True), None, ["x", "y", "z"])
    wanted = np.array([[name in names for name in "xyz"] for names in SETS * 3], dtype=np.int8)
    for chosen in (range(15), [7, 3, 3, 14], range(2, 9)):
        found = numbers(dataset.select(chosen), "label")
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, wanted[chosen])
    assert numbers(dataset.select([]), "label").shape == (0, 3)
    assert class_counts(wanted, 3).tolist() == [6, 6, 9]


def test_labels_that_look_alike_are_told_and_stay_apart(source: Read) -> None:
    alike = [["Good", "good", "\uff27ood"], ["a b", "a\u200bb"], ["cafe\u0301", "caf\u00e9"]]
    labels = [*chain.from_iterable(alike), "bad", "1.5"]
    found = ", ".join(" / ".join(map(repr, group)) for group in alike)
    said = f"labels differ in spelling alone, and are classes of their own: {found}"
    with pytest.warns(UserWarningMessage, match=re.escape(said)):
        assert load_corpus(source(table(labels * 10))).labels == sorted(labels)


def compared(train: dict[str, Any], test: dict[str, Any], cache: Path) -> Corpus:
    splits = DatasetDict(train=Dataset.from_dict(train), test=Dataset.from_dict(test))
    rows = {}
    for role, split in splits.items():
        rows[role] = Rows(np.arange(len(split)), *cached_keys(split, cache).T)
    return Corpus(splits, ["x", "y"], rows)


def test_texts_that_stand_in_two_splits_are_counted_in_a_warning(tmp_path: Path) -> None:
    """A pair is the same only if both of its texts are."""
    train = {"text": ["same", "other"], "text_pair": ["p", "q"], "label": [0, 1]}
    test = {"text": ["same", "same", "p"], "text_pair": ["p", "q", "same"], "label": [1, 0, 0]}
    found = compared(train, test, tmp_path)
    with pytest.warns(UserWarningMessage) as caught:
        facts = warn_of_repeated_texts(found, CONFIG)
    assert facts == {
        "texts also in train": 1,
        "near-duplicates in train": 1,
        "texts under different labels": 2,
    }
    assert [str(warning.message) for warning in caught] == [
        "reviews.csv: 1 texts of validation and test also stand in train",
        "reviews.csv: 2 of 5 rows hold a text that stands under different labels; `headscope labels` lists labels that are probably wrong",
    ]


def test_texts_of_a_test_file_that_are_in_train_in_another_width_or_nearly_are_counted(
    tmp_path: Path,
) -> None:
    train = {"text": ["a good film", "so bad", "fine"], "label": [0, 1, 0]}
    test = {"text": ["\uff41 good  FILM", "SO BAD!", "other"], "label": [0, 0, 1]}
    found = compared(train, test, tmp_path)
    words = "1 texts of validation and test also stand in train, 1 more but for digits and punct"
    with pytest.warns(UserWarningMessage, match=words):
        facts = warn_of_repeated_texts(found, CONFIG)
    assert (facts["texts also in train"], facts["near-duplicates in train"]) == (1, 2)


def test_the_files_of_each_split_are_named(tmp_path: Path) -> None:
    rows = "".join(f"{text},{'xy'[row % 2]}\n" for row, text in enumerate(texts(40)))
    for name in ("train.csv", "train_old.csv", "test.csv", "holdout.csv"):
        (tmp_path / name).write_text(f"text,label\n{rows}")
    with pytest.warns(UserWarningMessage, match="also stand in train"):
        found = load_corpus(DataConfig(path=str(tmp_path), cache_dir=str(tmp_path / "cache")))
    assert found.facts["files"] == {"train": ["train.csv", "train_old.csv"], "test": ["test.csv"]}
    path = str(tmp_path / "train.csv")
    assert load_corpus(DataConfig(path=path)).facts["files"] == {"train": [Path(path).name]}
