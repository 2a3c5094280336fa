"""`headscope labels` finds planted errors, and data.drop_rows drops or corrects them."""

import codecs
import csv
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headscope.cli.labels import labels
from headscope.data.corpus import load_corpus, row_keys
from headscope.ground.errors import ConfigError, DataError, UserWarningMessage
from headscope.settings.commands import LabelsConfig
from headscope.training.train import train
from training_runs import Trained, configured, reviews, write


@pytest.mark.slow
def test_planted_errors_of_all_splits_are_found_and_corrected(tmp_path: Path) -> None:
    rows = [{**row, "id": f"r{number}"} for number, row in enumerate(reviews(400))]
    planted = {row["id"]: row["label"] for row in rows[::40]}
    for row in rows[::40]:
        row["label"] = "bad" if row["label"] == "good" else "good"
    config = configured(tmp_path, rows)
    report = train(config, Console(quiet=True))
    console = Console(record=True, width=80)
    found = labels(
        LabelsConfig(
            run=str(report.folder), output=str(tmp_path / "labels.csv"), folds=3, id_column="id"
        ),
        console,
    )
    first = [row["id"] for row in found[: len(planted)]]
    assert len(planted.keys() & {*first}) >= 9
    assert len({row["split"] for row in found}) > 1
    for row in found:
        assert row["suggested"] != row["label"]
        assert rows[row["row"]]["id"] == row["id"]
        assert rows[row["row"]]["text"] == row["text"]
        row["corrected"] = planted.get(row["id"], "")
    path = tmp_path / "labels.csv"
    assert path.read_bytes().startswith(codecs.BOM_UTF8)  # it is corrected in a spreadsheet
    with path.open(encoding="utf-8-sig") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [row["text"] for row in found]
    printed = console.export_text()
    assert printed.startswith("3 networks are trained")
    assert f"{len(found)} of 400 texts" in printed
    data = replace(config.data, drop_rows=write(tmp_path / "reviewed.csv", found))
    clean = load_corpus(data)
    assert sum(clean.facts["labels corrected"].values()) == len(planted.keys() & {*first})
    texts = {row["text"]: planted[row["id"]] for row in found if row["id"] in planted}
    for split in clean.splits.values():
        for row in split:
            assert clean.labels[row["label"]] == texts.get(row["text"], clean.labels[row["label"]])


def test_rows_of_any_split_are_dropped_or_corrected(tmp_path: Path) -> None:
    config = configured(tmp_path).data
    whole = load_corpus(config)
    keys = {role: row_keys(split, whole.labels) for role, split in whole.splits.items()}
    fixed = whole.splits["test"][0]["label"]
    other = whole.labels[1 - fixed]
    rows = [{"key": key, "corrected": ""} for key in (*keys["train"][3:5], keys["test"][1])]
    given = write(tmp_path / "drop.csv", [*rows, {"key": keys["test"][0], "corrected": other}])
    with pytest.warns(UserWarningMessage, match="leaves out 1 test texts, so scores are of easier"):
        corpus = load_corpus(replace(config, drop_rows=given))
    kept = row_keys(corpus.splits["train"], corpus.labels)
    assert kept == keys["train"][:3] + keys["train"][5:]
    assert corpus.splits["test"][0]["label"] == 1 - fixed
    assert row_keys(corpus.splits["test"], corpus.labels)[1:] == keys["test"][2:]
    assert corpus.facts["texts dropped"] == {"test": 1, "validation": 0, "train": 2}
    assert corpus.facts["labels corrected"] == {"test": 1, "validation": 0, "train": 0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"key": "7"}, "1 of 1 rows have a key of no text"),
        ({"key": "7", "corrected": "god"}, "'corrected': expected one of bad, good or .*, got god"),
    ],
)
def test_a_file_of_other_data_is_one_message(
    row: dict[str, str], message: str, tmp_path: Path
) -> None:
    config = replace(configured(tmp_path).data, drop_rows=write(tmp_path / "a.csv", [row]))
    with pytest.raises(DataError, match=message):
        load_corpus(config)


def test_a_fold_repeats_no_note_of_the_run(tmp_path: Path) -> None:
    rows = reviews(60)
    rows += [{"text": f"lovely {row['text']}", "label": "Good"} for row in rows[:8]]
    config = configured(tmp_path, rows, max_epochs=1)
    with pytest.warns(UserWarningMessage, match="differ in spelling alone"):
        report = train(config, Console(quiet=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = str(tmp_path / "labels.csv")
        labels(LabelsConfig(run=str(report.folder), output=output, folds=2), Console(quiet=True))
    assert not [each for each in caught if "headscope-" in str(each.message)]


def test_several_labels_a_text_are_one_message(any_classes: Trained) -> None:
    with pytest.raises(ConfigError, match="expected one label a text"):
        labels(LabelsConfig(run=str(any_classes.folder)))
