"""From a source to three splits: labels of every kind, splits that are missing, and what is refused on the way."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset

from headscope.data.config import DataConfig
from headscope.data.corpus import Corpus, load_corpus, load_split
from headscope.errors import DataError, UserWarningMessage

NAMES = ClassLabel(names=["bad", "fair", "good"])


def texts(count: int, start: int = 0) -> list[str]:
    """Texts that are no near-duplicates of each other."""
    return [f"text {chr(ord('a') + row // 26)}{chr(ord('a') + row % 26)}" for row in range(start, start + count)]


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
    return [(text, corpus.labels[label]) for text, label in zip(split["text"], split["label"], strict=True)]


def refused(settings: DataConfig) -> str:
    with pytest.raises(DataError) as caught:
        load_corpus(settings)
    return str(caught.value).removeprefix(str(Path(settings.path).parent) + "/")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([10, 9], ["9", "10"]),
        ([-1, 1], ["-1", "1"]),
        ([3.0, 1.0], ["1", "3"]),
        ([True, False], ["0", "1"]),
        (["good", "good ", " bad", "日本"], ["bad", "good", "日本"]),
    ],
)
def test_labels_of_every_kind_become_indices_into_their_names(
    tmp_path: Path, labels: list[Any], names: list[str]
) -> None:
    labels = labels * (40 // len(labels))
    corpus = load_corpus(config(tmp_path, table(labels)))
    assert corpus.labels == names
    wanted = [label.strip() if isinstance(label, str) else str(int(label)) for label in labels]
    found = [row for role in ("train", "validation", "test") for row in rows(corpus, role)]
    assert sorted(found) == sorted(zip(texts(40), wanted, strict=True))


def test_integers_beside_a_gap_are_still_integers(tmp_path: Path) -> None:
    lines = [f"{text},{'' if row == 7 else (3, 5)[row % 2]}" for row, text in enumerate(texts(40))]
    (tmp_path / "gap.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    settings = DataConfig(path=str(tmp_path / "gap.csv"))
    assert "column 'label': 1 of 40 rows are empty or null (the first is row 7)" in refused(settings)
    settings.drop_empty = True
    corpus = load_corpus(settings)
    assert corpus.labels == ["3", "5"]
    assert Counter(label for role in corpus.splits for _, label in rows(corpus, role)) == {"3": 20, "5": 19}


def test_splits_may_name_the_same_classes_in_other_ways(tmp_path: Path) -> None:
    train = table([0, 1, 2] * 5).cast_column("label", NAMES)
    reordered = table([0, 2], 20).cast_column("label", ClassLabel(names=["good", "fair", "bad"]))
    strings = table(["fair", "good"], 30)
    corpus = load_corpus(config(tmp_path, train, validation_path=reordered, test_path=strings))
    assert [label for _, label in rows(corpus, "validation")] == ["good", "bad"]
    assert [label for _, label in rows(corpus, "test")] == ["fair", "good"]


def test_a_split_whose_labels_are_kept_secret_is_refused_with_advice(tmp_path: Path) -> None:
    train = table([0, 1] * 20).cast_column("label", NAMES)
    secret = table([-1] * 5, 50).cast_column("label", NAMES)
    assert refused(config(tmp_path, train, test_path=secret)) == (
        "test_path.parquet, split test, column 'label': 5 of 5 rows have unknown labels -1; "
        "takes bad, fair, good (a split without labels is often marked -1: name another split)"
    )
    message = refused(config(tmp_path, table([0, 1] * 20), test_path=table([-1] * 5, 50)))
    assert message == "test_path.parquet, column 'label': test has labels that train lacks: '-1' (5 rows)"


def test_missing_splits_are_cut_from_train_each_as_a_share_of_all(tmp_path: Path) -> None:
    corpus = load_corpus(config(tmp_path, table(["x", "y"] * 100), validation_share=0.2, test_share=0.1))
    assert corpus.facts["sizes"] == {"train": 140, "test": 20, "validation": 40}
    assert (corpus.facts["test cut from train"], corpus.facts["validation cut from train"]) == (20, 40)
    for role, size in corpus.facts["sizes"].items():
        assert Counter(label for _, label in rows(corpus, role)) == {"x": size / 2, "y": size / 2}
    assert sorted(row for role in corpus.splits for row, _ in rows(corpus, role)) == sorted(texts(200))


@pytest.mark.parametrize("validation_split", ["validation", None])
def test_validation_is_cut_from_train_and_never_from_the_test_split(
    tmp_path: Path, validation_split: str | None
) -> None:
    test = table(["x", "y"] * 10, 300)
    settings = config(tmp_path, table(["x", "y"] * 50), test_path=test, validation_split=validation_split)
    corpus = load_corpus(settings)
    assert [row for row, _ in rows(corpus, "test")] == texts(20, 300)
    parts = [{row for row, _ in rows(corpus, role)} for role in ("train", "validation")]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(texts(100))
    assert len(parts[1]) == 10


def test_the_split_that_is_tested_on_may_have_another_name(tmp_path: Path) -> None:
    for name, start in (("train", 0), ("validation", 300), ("test", 350)):
        table(["x", "y"] * 20, start).to_parquet(tmp_path / f"{name}.parquet")
    settings = DataConfig(path=str(tmp_path), validation_split=None, test_split="validation")
    corpus = load_corpus(settings)
    assert [row for row, _ in rows(corpus, "test")] == texts(40, 300)
    assert {row for row, _ in rows(corpus, "validation")} < set(texts(40))


def test_cuts_follow_split_seed_alone(tmp_path: Path) -> None:
    train = table(["x", "y"] * 50)
    first, again, other = (rows(load_corpus(config(tmp_path, train, split_seed=seed)), "test") for seed in (0, 0, 1))
    assert first == again != other


def test_texts_shared_between_given_splits_are_told_and_kept(tmp_path: Path) -> None:
    settings = config(tmp_path, table(["x", "y"] * 20), test_path=table(["x", "y"] * 3, 37))
    with pytest.warns(UserWarningMessage, match="texts that also stand in train: .* of 6 in test"):
        corpus = load_corpus(settings)
    shared = {row for row, _ in rows(corpus, "train")} & set(texts(3, 37))
    assert corpus.facts["texts also in train"] == len(shared) > 0
    assert corpus.facts["sizes"]["test"] == 6


SAME = {"text": ["same", "Same", "same!", "same 1"], "label": ["x", "y"] * 2}
TWO = {"text": [f"{'good' if row % 2 else 'bad'} film {row}" for row in range(120)], "label": ["x", "y"] * 60}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (table(["x"] * 9), "path.parquet, column 'label': train (9 rows) has one class only, x"),
        (table(["x"] * 9 + ["y"]), "classes with fewer than 2 rows in train: 'y' (1)"),
        (Dataset.from_dict(SAME), "path.parquet, split train (4 rows): too few different texts to cut a test split"),
        (Dataset.from_dict(TWO), "(120 rows): too few different texts to cut a validation split from it: 2"),
        (table([0.5, 1.0] * 9), "split train, column 'label': 9 of 18 rows hold fractions such as 0.5"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_anything_is_cut(
    tmp_path: Path, train: Dataset, message: str
) -> None:
    assert message in refused(config(tmp_path, train))


def test_the_file_of_the_split_at_fault_is_the_one_that_is_named(tmp_path: Path) -> None:
    settings = config(tmp_path, table(["x", "y"] * 20), validation_path=table(["x", "z"], 50))
    message = "validation_path.parquet, column 'label': validation has labels that train lacks: 'z' (1 rows)"
    assert refused(settings) == message


def test_other_data_is_labelled_as_the_model_knows_its_classes(tmp_path: Path) -> None:
    settings = config(tmp_path, table(["y", "x", "y"]))
    dataset, name = load_split(settings, None, ["z", "y", "x"])
    assert (name, list(dataset["label"])) == ("train", [1, 2, 1])
    assert load_split(settings, "train", ["x", "y"])[0]["label"][:] == [1, 0, 1]
    with pytest.raises(DataError, match=r"split train, column 'label': 2 of 3 rows have unknown labels y; takes x, z"):
        load_split(settings, None, ["x", "z"])


def test_one_split_of_several_is_loaded_and_the_others_are_not_looked_at(tmp_path: Path) -> None:
    settings = config(tmp_path, table([None, "x"]), test_path=table(["x", "y"], 50), limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset, name = load_split(settings, None, ["x", "y"])
    assert (name, len(dataset)) == ("test", 1)
    with pytest.raises(DataError, match="no split 'validation'; it has train, test"):
        load_split(settings, "validation", ["x", "y"])


@pytest.mark.parametrize("at_once", [7])
def test_what_is_loaded_does_not_depend_on_how_many_rows_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    labels, found = [["x", "y", "", "z", "x"][row % 5] or None for row in range(200)], []
    train = Dataset.from_dict({"text": [*texts(60), *texts(60), *texts(60), *[" "] * 20], "label": labels})
    settings = config(tmp_path, train, test_path=table(["x", "y"] * 10, 55), drop_empty=True)
    for rows_at_once in (1000, at_once):
        monkeypatch.setattr("headscope.data.columns.ROWS_AT_ONCE", rows_at_once)
        with pytest.warns(UserWarningMessage) as caught:
            corpus = load_corpus(settings)
        splits = {role: split.to_list() for role, split in corpus.splits.items()}
        found.append((splits, corpus.labels, corpus.facts, [str(warning.message) for warning in caught]))
    assert found[0] == found[1]
