"""Texts with any number of labels: every form that a column may have, and what is rejected, each by one message."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, LargeList, List, Value

from headscope.config import DataConfig, TokenizerConfig
from headscope.data.columns import class_counts, numbers
from headscope.data.corpus import Corpus, load_corpus, load_split
from headscope.data.datamodule import TextDataModule
from headscope.errors import DataError, UserWarningMessage

SETS: list[list[str]] = [["x", "z"], [], ["y"], ["z"], ["x", "y", "z"]]
NAMES = ClassLabel(names=["x", "y", "z"])


def texts(count: int) -> list[str]:
    """Texts that are no near-duplicates of each other."""
    return [f"text {chr(ord('a') + row // 26)}{chr(ord('a') + row % 26)}" for row in range(count)]


def wanted(count: int = 100) -> dict[str, set[str]]:
    return {text: set(SETS[row % 5]) for row, text in enumerate(texts(count))}


def found(corpus: Corpus) -> dict[str, set[str]]:
    return {
        row["text"]: {name for name, has in zip(corpus.labels, row["label"], strict=True) if has}
        for split in corpus.splits.values()
        for row in split
    }


def written(folder: Path, labels: list[Any], feature: Any = None, **settings: Any) -> DataConfig:
    """Write parquet, which keeps the features, and return the configuration that reads it."""
    features = Features({"text": Value("string"), "label": feature}) if feature else None
    path = folder / "rows.parquet"
    Dataset.from_dict({"text": texts(len(labels)), "label": labels}, features).to_parquet(path)
    return DataConfig(path=str(path), cache_dir=str(folder), multi_label=True, **settings)


def rejected(config: DataConfig) -> str:
    with pytest.raises(DataError) as caught:
        load_corpus(config)
    return str(caught.value).removeprefix(str(Path(config.path).parent) + "/")


@pytest.mark.parametrize(
    "kind", [List(Value("string")), LargeList(Value("large_string")), List(NAMES), None]
)
def test_lists_of_names_become_a_one_at_each_class(tmp_path: Path, kind: Any) -> None:
    named = isinstance(kind, List) and isinstance(kind.feature, ClassLabel)
    rows = [[NAMES.str2int(name) for name in names] if named else names for names in SETS * 20]
    corpus = load_corpus(written(tmp_path, rows, kind))
    assert corpus.labels == ["x", "y", "z"]
    assert found(corpus) == wanted()
    assert corpus.facts["mean labels of a text"] == 1.4
    assert corpus.facts["share of texts without a label"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("ending", "separator"), [("csv", ";"), ("tsv", " | "), ("csv", ","), ("jsonl", ";")]
)
def test_strings_are_split_at_the_separator_and_an_empty_one_has_no_label(
    tmp_path: Path, ending: str, separator: str
) -> None:
    path = tmp_path / f"rows.{ending}"
    rows = [(text, f" {separator}".join(sorted(names))) for text, names in wanted().items()]
    with path.open("w", newline="", encoding="utf-8") as file:
        if ending == "jsonl":
            file.writelines(json.dumps({"text": text, "label": cell}) + "\n" for text, cell in rows)
        else:
            csv.writer(file, delimiter="\t" if ending == "tsv" else ",").writerows(
                [("text", "label"), *rows]
            )
    config = DataConfig(
        path=str(path), cache_dir=str(tmp_path), multi_label=True, label_separator=separator.strip()
    )
    assert found(load_corpus(config)) == wanted()


def test_a_file_whose_cells_hold_one_number_each_names_the_classes_of_another_whose_cells_hold_several(
    tmp_path: Path,
) -> None:
    rows = {"train": ["3;5", "", "5", "3"] * 10, "test": ["3", "", "5", "5"]}
    for split, cells in rows.items():
        lines = [f"{split} {text},{cell}" for text, cell in zip(texts(40), cells, strict=False)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    path, test_path = (str(tmp_path / f"{split}.csv") for split in rows)
    corpus = load_corpus(
        DataConfig(path=path, test_path=test_path, cache_dir=str(tmp_path), multi_label=True)
    )
    assert corpus.labels == ["3", "5"]
    assert corpus.splits["test"]["label"][:] == [[1, 0], [0, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["x", "y"] * 20, "no text of train has two labels; leave data.multi_label out, or"),
        ([1, 2] * 20, "no text of train has two labels"),
        (["a,b", "b", "", "c"] * 20, "data.label_separator=... (it is ';')"),
        (
            [["x"], None, ["y", "x"]],
            "split train, column 'label': 1 of 3 rows are empty or null (the first is row 1)",
        ),
        ([["x"], ["y", None], []], "1 of 3 rows are empty or null (the first is row 1)"),
        ([["x"], ["y", " "], []], "1 of 3 rows are empty or null (the first is row 1)"),
        (
            [[1, 0, 0], [0, 1, 1]],
            "row 0: expected the labels that a text has, such as [0, 3], got [1, 0, 0]",
        ),
        ([[1.0], [1.0, 0.5]], "row 1: expected integers or strings, got [1.0, 0.5]"),
        ([[["x"]], [["y"]]], "column 'label': expected integers, strings or"),
        ([[], []], "no text has a label"),
        (["", "", ""], "no text has a label"),
        ([["x"], [], ["x"], []], "train (4 rows) has too few classes: expected two or more, got x"),
    ],
)
def test_what_cannot_be_trained_on_is_rejected_with_what_to_do(
    tmp_path: Path, labels: list[Any], message: str
) -> None:
    said = rejected(written(tmp_path, labels))
    assert said.startswith("rows.parquet, ")
    assert message in said


def test_rows_with_a_gap_are_dropped_if_wished_and_those_without_a_label_are_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(
        UserWarningMessage, match="dropped 20 of 80 rows with an empty 'text' or 'label'"
    ):
        corpus = load_corpus(written(tmp_path, [["x", "y"], None, [], ["y"]] * 20, drop_empty=True))
    assert "Flattening" not in capfd.readouterr().err  # no bar of `datasets`
    assert corpus.facts["rows dropped as empty"] == {"train": 20}
    assert sum(corpus.facts["sizes"].values()) == 60
    assert set(map(frozenset, found(corpus).values())) == {
        frozenset("xy"),
        frozenset(),
        frozenset("y"),
    }


def test_other_data_is_labelled_as_the_model_knows_its_classes(tmp_path: Path) -> None:
    config = written(tmp_path, [["y", "x"], [], ["y"]])
    dataset, _ = load_split(config, None, ["z", "y", "x"])
    assert dataset["label"][:] == [[0, 1, 1], [0, 0, 0], [0, 1, 0]]
    with pytest.raises(
        DataError, match=r"column 'label': 2 of 3 rows have unknown labels y; expected x, z"
    ):
        load_split(config, None, ["x", "z"])


def test_labels_are_read_as_a_table_however_they_are_stored(tmp_path: Path) -> None:
    dataset, _ = load_split(written(tmp_path, SETS * 3), None, ["x", "y", "z"])
    table = np.array([[name in names for name in "xyz"] for names in SETS * 3], dtype=np.int8)
    assert numbers(dataset, "label").dtype == np.int8
    np.testing.assert_array_equal(numbers(dataset, "label"), table)
    np.testing.assert_array_equal(
        numbers(dataset.select([7, 3, 3, 14]), "label"), table[[7, 3, 3, 14]]
    )
    np.testing.assert_array_equal(numbers(dataset.select(range(2, 9)), "label"), table[2:9])
    assert numbers(dataset.select([]), "label").shape == (0, 3)
    assert class_counts(table, 3).tolist() == [6, 6, 9]


def test_a_sample_may_lack_a_label_that_few_texts_have(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        [[f"rare {row // 2}", "x"] if row < 20 else SETS[row % 5] for row in range(200)],
        limit=20,
    )
    corpus = load_corpus(config)
    assert corpus.facts["sizes"] == {"train": 20, "test": 20, "validation": 20}
    assert len(corpus.labels) == 13
    assert (numbers(corpus.splits["train"], "label").sum(axis=0) == 0).any()


def test_batches_carry_a_row_of_zeros_and_ones_for_each_text(tmp_path: Path) -> None:
    data = TextDataModule(written(tmp_path, SETS * 20), TokenizerConfig(vocab_size=300), seed=0)
    for batch in data.train_dataloader():
        np.testing.assert_array_equal(
            batch.labels.numpy(), data.labels("train")[batch.rows.numpy()]
        )
        assert batch.labels.shape == (len(batch.rows), 3)
