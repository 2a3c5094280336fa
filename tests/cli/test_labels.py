"""`headscope labels` finds planted errors, and data.drop_rows trains without them."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from headscope.cli.labels import folds_of, labels
from headscope.command_settings import LabelsConfig
from headscope.data.columns import values
from headscope.data.corpus import load_corpus, row_keys
from headscope.errors import ConfigError, DataError
from headscope.training.train import train
from headscope.validation import check, validate
from training_runs import comments, configured, reviews, write


@pytest.mark.slow
def test_planted_errors_are_found_and_dropped(tmp_path: Path) -> None:
    rows = reviews(400)
    planted = {rows[place]["text"] for place in range(0, 400, 40)}
    for row in rows:
        if row["text"] in planted:
            row["label"] = "bad" if row["label"] == "good" else "good"
    report = train(configured(tmp_path, rows), Console(quiet=True))
    console = Console(record=True, width=80)
    found = labels(LabelsConfig(run=str(report.folder), folds=3), console)
    in_train = planted & {*values(load_corpus(report.config.data).splits["train"], "text")}
    assert len(in_train) > 5
    worst = {row["text"] for row in found[: len(in_train)]}
    assert len(worst & in_train) >= len(in_train) / 2  # by chance 0.2 of 9
    assert all(row["suggested"] != row["label"] for row in found)
    path = report.folder / "labels.csv"
    with path.open(encoding="utf-8") as file:
        written = [row["text"] for row in csv.DictReader(file)]
    assert written == [row["text"] for row in found]
    printed = console.export_text()
    assert f"{len(found)} of 320 training texts" in printed

    data = replace(report.config.data, drop_rows=str(path))
    again = train(replace(report.config, data=data, name="clean"), Console(quiet=True))
    assert again.facts_of_data["training texts dropped"] == len(found)
    assert again.facts_of_data["sizes"]["train"] == 320 - len(found)


def test_near_duplicates_share_a_fold() -> None:
    groups = np.array([5, 5, 1, 2, 1, 9, 5, 3])
    folds = folds_of(groups, 3, 0)
    assert all(len({*folds[groups == group]}) == 1 for group in groups)
    assert {*folds} == {0, 1, 2}


def test_rows_are_dropped_by_text_and_label(tmp_path: Path) -> None:
    config = configured(tmp_path).data
    whole = load_corpus(config).splits
    keys = row_keys(whole["train"], ["bad", "good"])
    rows = [{"key": key} for key in keys[3:5]]
    given = write(tmp_path / "drop.csv", rows)
    corpus = load_corpus(replace(config, drop_rows=given))
    kept = row_keys(corpus.splits["train"], corpus.labels)
    assert kept == keys[:3] + keys[5:]
    assert corpus.splits["test"]["text"] == whole["test"]["text"]


def test_a_file_of_other_data_is_one_message(tmp_path: Path) -> None:
    config = replace(configured(tmp_path).data, drop_rows=write(tmp_path / "a.csv", [{"key": "7"}]))
    with pytest.raises(DataError, match="1 of 1 rows have a key of no training text"):
        load_corpus(config)


@pytest.mark.slow
def test_several_labels_a_text_are_one_message(tmp_path: Path) -> None:
    report = train(configured(tmp_path, comments(80), max_steps=2), Console(quiet=True))
    with pytest.raises(ConfigError, match="expected one label a text"):
        labels(LabelsConfig(run=str(report.folder)))


def test_the_file_must_be_free(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    given = LabelsConfig(run=str(tmp_path), output=str(tmp_path / "a.csv"))
    with pytest.raises(ConfigError, match=r"^output: expected a file that does not .*a\.csv"):
        check(given)
    check(replace(given, overwrite=True))
    with pytest.raises(ConfigError, match=r"^output: expected a name that ends in \.csv or"):
        validate(LabelsConfig, {"run": str(tmp_path), "output": "a.html"})
