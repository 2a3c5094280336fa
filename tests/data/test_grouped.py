"""Cuts by a group or by time; folds follow groups; what the leak is worth."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from headscope.cli import labels as module
from headscope.cli.labels import labels
from headscope.data.corpus import Corpus, groups_of, load_corpus
from headscope.data.datamodule import TextDataModule
from headscope.data.evidence import assign_folds
from headscope.data.splits import cut_groups, cut_latest, in_order
from headscope.ground.errors import ConfigError, DataError, UserWarningMessage
from headscope.settings.checks import override, validate
from headscope.settings.commands import LabelsConfig
from headscope.settings.config import DataConfig, TokenizerConfig
from headscope.training.train import train
from training_runs import FILLER, configured, write


def tickets(customers: int = 60, each: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    """Return tickets by customers who sign with words of their own; most of a customer's have one label at random."""
    draw = random.Random(seed)
    rows = []
    for number in range(customers):
        signature = [
            f"{draw.choice('bdfgkl')}{draw.choice('aeiou')}{number}{part}" for part in "xyz"
        ]
        label = draw.choice(["bug", "question"])
        for _ in range(each):
            words = [*draw.choices(FILLER, k=8), draw.choice(["crash", "how"]), *signature]
            draw.shuffle(words)
            day = f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
            rows.append(
                {"text": " ".join(words), "label": label, "customer": f"c{number}", "date": day}
            )
    return rows


def sides(corpus: Corpus, column: str) -> dict[str, set[str]]:
    return {role: {*rows.cut_by[column]} for role, rows in corpus.rows.items()}


def test_a_group_is_in_one_split_and_in_one_fold(tmp_path: Path) -> None:
    data = replace(configured(tmp_path, tickets()).data, group_column="customer")
    corpus = load_corpus(data)
    found = sides(corpus, "group")
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == 60
    sizes = {role: len(split) for role, split in corpus.splits.items()}
    assert sizes["test"] == pytest.approx(36, abs=8)
    assert sizes["validation"] == pytest.approx(36, abs=8)
    assert corpus.groups is not None
    np.testing.assert_array_equal(in_order(corpus.groups), groups_of(corpus.rows["train"]))
    loaded = TextDataModule(data, TokenizerConfig(), 0, evidence=True)
    evidence = loaded.encoded["train"].evidence
    assert evidence is not None
    folds: dict[str, set[int]] = {}
    for group, fold in zip(
        loaded.corpus.rows["train"].cut_by["group"], evidence.folds, strict=True
    ):
        folds.setdefault(group, set()).add(int(fold))
    assert all(len(each) == 1 for each in folds.values())
    assert len({min(each) for each in folds.values()}) == 10


def test_rows_without_a_group_are_one_each(tmp_path: Path) -> None:
    rows = [
        row | {"customer": "" if at % 2 else row["customer"]} for at, row in enumerate(tickets())
    ]
    corpus = load_corpus(replace(configured(tmp_path, rows).data, group_column="customer"))
    assert corpus.facts["groups"] == 60 + 180
    found = sides(corpus, "group")
    assert not found["test"] & found["train"] - {None}


@pytest.mark.parametrize(
    "write_time",
    [
        str,
        lambda day: f"{day}T10:00:00+09:00",
        lambda day: day.replace("-", ""),
        lambda day: float(day.replace("-", "")) / 1e4,
    ],
)
def test_the_latest_texts_are_the_test_split_and_those_before_them_validation(
    tmp_path: Path, write_time: Any
) -> None:
    rows = [row | {"date": write_time(row["date"])} for row in tickets()]
    corpus = load_corpus(replace(configured(tmp_path, rows).data, time_column="date"))
    found = {role: [*rows.cut_by["time"]] for role, rows in corpus.rows.items()}
    assert max(found["train"]) < min(found["validation"])
    assert max(found["validation"]) < min(found["test"])
    assert len(found["test"]) >= 36  # a tenth, and the others of that day
    assert len(found["test"]) < 45


def test_the_last_texts_of_a_class_stay_whatever_their_group_or_time(tmp_path: Path) -> None:
    rows = tickets()
    rows += [
        {
            "text": f"refund {at} {'a' * at}",
            "label": "refund",
            "customer": "new",
            "date": "2027-01-01",
        }
        for at in range(9)
    ]
    for key, column in (("group_column", "customer"), ("time_column", "date")):
        corpus = load_corpus(replace(configured(tmp_path, rows).data, **{key: column}))
        of_class = {role: split["label"].count(2) for role, split in corpus.splits.items()}
        assert of_class == {"train": 9, "validation": 0, "test": 0}


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        (
            "date",
            {3: "27.11.2026"},
            r"column 'date', row 3: expected a date such as .*, got 27\.11",
        ),
        (
            "date",
            dict.fromkeys(range(359), "2026-01-02T10:00Z") | {359: "2026-01-02T10:00"},
            r"row 359: expected a time zone in all rows or in none, as row 0 has 2026-01-02T10:00Z",
        ),
        ("date", {5: ""}, r"row 5: expected a date .*, got None"),
        ("customer", dict.fromkeys(range(360), "c"), "only 1 groups of 2 classes, too few to cut"),
        ("custommer", {}, "no column 'custommer' for data.group_column; it has text, label, cust"),
    ],
)
def test_what_cannot_be_cut_is_one_message(
    tmp_path: Path, column: str, cells: dict[int, str], message: str
) -> None:
    rows = tickets()
    for at, cell in cells.items():
        rows[at][column] = cell
    key = "time_column" if column == "date" else "group_column"
    with pytest.raises(DataError, match=message):
        load_corpus(replace(configured(tmp_path, rows).data, **{key: column}))


def test_group_or_time() -> None:
    with pytest.raises(ConfigError, match=r"time_column: expected null with data.group_column"):
        validate(DataConfig, {"group_column": "a", "time_column": "b"})
    with pytest.raises(ConfigError, match=r"group_column: expected another column than data.label"):
        validate(DataConfig, {"group_column": "label"})


def test_cuts_of_lists_of_labels_keep_groups_and_time() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2, (200, 3)).astype(np.int8)
    groups = rng.integers(0, 25, 200)
    is_off = cut_groups(table, groups, 0.2, 0)
    assert not {*groups[is_off]} & {*groups[~is_off]}
    assert 25 <= is_off.sum() <= 55
    times = rng.permutation(200)
    assert {*times[cut_latest(table, np.arange(200), times, 0.2)]} == {*range(160, 200)}


def test_the_folds_of_labels_keep_groups_and_each_fold_trains_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, tickets(20, 4), max_epochs=1)
    config = override(config, {"data.group_column": "customer", "inspection.enabled": False})
    report = train(config, Console(quiet=True))
    parts: list[set[str]] = []
    seen = []

    def trained_without(run: Any, given: dict[str, Any], folder: Path) -> Any:
        seen.append(tuple({*given[role][1].group} for role in ("train", "test")))
        other = original(run, given, folder)
        parts.append({*other.config.data.group_column.split()})
        return other

    original = module.trained_without
    monkeypatch.setattr(module, "trained_without", trained_without)
    output = str(tmp_path / "labels.csv")
    labels(LabelsConfig(run=str(report.folder), output=output, folds=2), Console(quiet=True))
    assert parts == [{"group"}] * 2
    assert all(not own & others for own, others in seen)
    assert set().union(*(others for _, others in seen)) == {f"c{at}" for at in range(20)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*than a guess")
def test_planted_leakage_is_what_a_random_split_scores(tmp_path: Path) -> None:
    """The label is a coin's for each customer: nothing but the customer tells it."""
    config = configured(tmp_path, tickets(120, 8), max_epochs=6)
    scores = {}
    for column in (None, "customer"):
        changed = {"data.group_column": column, "name": f"by-{column}", "inspection.enabled": False}
        report = train(override(config, changed), Console(quiet=True))
        scores[column] = report.test.accuracy
    assert scores[None] > 0.8
    assert scores["customer"] < 0.7


def test_folds_are_those_of_groups() -> None:
    groups = np.repeat(np.arange(30), 4)
    folds = assign_folds(groups, 5)
    assert all(len({*folds[groups == group]}) == 1 for group in range(30))


def test_a_large_group_does_not_make_a_part_larger_than_asked() -> None:
    groups = np.concatenate([np.zeros(300, int), 1 + np.arange(700) // 7])
    labels = np.arange(1000) % 2
    for seed in range(5):
        is_off = cut_groups(labels, groups, 0.1, seed)
        assert 80 <= is_off.sum() <= 120
        assert not is_off[:300].any()


def test_groups_across_given_files_are_counted_and_said(tmp_path: Path) -> None:
    rows = [row | {"customer": f"c{at % 20}"} for at, row in enumerate(tickets(20, 4))]
    given = [
        {**row, "text": f"{row['text']} x{at}", "customer": name}
        for at, (row, name) in enumerate(zip(rows, ["C1 ", "c2", "new", ""] * 5, strict=False))
    ]
    config = configured(tmp_path, rows).data
    path = write(tmp_path / "test.csv", given)
    for column in ("group_column", "time_column"):
        name = {"group_column": "customer", "time_column": "date"}[column]
        others = replace(config, test_path=path, **{column: name})
        what = {"group_column": "10 of 20 test texts are of groups", "time_column": "no later"}
        with pytest.warns(UserWarningMessage, match=what[column]):
            corpus = load_corpus(others)
    corpus = load_corpus(replace(config, group_column="customer"))  # cut, so on one side
    assert "test texts of groups in train" not in corpus.facts


def test_a_group_is_one_however_its_name_is_written(tmp_path: Path) -> None:
    rows = [
        row | {"customer": str.upper(f" {row['customer']}") if at % 2 else row["customer"]}
        for at, row in enumerate(tickets())
    ]
    corpus = load_corpus(replace(configured(tmp_path, rows).data, group_column="customer"))
    assert corpus.facts["groups"] == 60


def test_a_group_of_numbers_is_one_in_files_with_and_without_a_gap(tmp_path: Path) -> None:
    rows = [row | {"customer": f"{at % 20}"} for at, row in enumerate(tickets(20, 4))]
    others = {}
    for role, customers in (("validation", [30.0, None]), ("test", [3.0, 19.0, 20.0, None])):
        texts = [f"{role} {'x' * at}" for at in range(len(customers))]
        frame = {"text": texts, "label": rows[0]["label"], "customer": customers}  # as pandas has
        others[f"{role}_path"] = str(tmp_path / f"{role}.parquet")  # numbers beside a gap
        pd.DataFrame(frame).to_parquet(others[f"{role}_path"])
    config = replace(configured(tmp_path, rows).data, **others, group_column="customer")
    with pytest.warns(UserWarningMessage, match="2 of 4 test texts are of groups in train"):
        load_corpus(config)


def test_one_time_alone_is_named_as_what_is_missing(tmp_path: Path) -> None:
    rows = [row | {"date": "2026-01-01"} for row in tickets()]
    message = "only 1 different times in column 'date' of 2 classes, too few to cut a test split"
    with pytest.raises(DataError, match=message):
        load_corpus(replace(configured(tmp_path, rows).data, time_column="date"))


def test_what_few_groups_write_is_no_evidence(tmp_path: Path) -> None:
    """Only signatures are of one customer; FILLER's words are of many."""
    data = replace(configured(tmp_path, tickets()).data, group_column="customer")
    loaded = TextDataModule(data, TokenizerConfig(), 0, evidence=True)
    evidence = loaded.encoded["train"].evidence
    assert evidence is not None
    assert loaded.evidence is not None
    has = evidence.by_text(np.arange(len(evidence.folds)), len(loaded.evidence)).tocoo()
    groups = groups_of(loaded.corpus.rows["train"])[has.row]
    pairs = np.unique(np.stack([has.col, groups]), axis=1)
    of_groups = np.bincount(pairs[0], minlength=len(loaded.evidence))
    texts = np.bincount(has.col, minlength=len(loaded.evidence))
    assert ((of_groups >= 10) | (texts < 2 * of_groups)).all()
    assert len(of_groups) > 100
    alone = TextDataModule(replace(data, group_column=None), TokenizerConfig(), 0, evidence=True)
    assert alone.evidence is not None
    assert len(alone.evidence) > len(of_groups)  # signatures too
