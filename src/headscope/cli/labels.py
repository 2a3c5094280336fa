"""labels(config): training texts whose label is probably wrong, by confident learning.

Each text is classified by a network that has not seen it: the run's own settings, trained on the
other folds. cleanlab compares these probabilities with the given labels (Northcutt et al. 2021,
Confident Learning: Estimating Uncertainty in Dataset Labels). N texts, C classes.
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from jaxtyping import Float, Int
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headscope.cli.evaluate import own_corpus
from headscope.cli.predict import row_writer
from headscope.command_settings import LabelsConfig
from headscope.config import DataConfig, TrainConfig
from headscope.data.columns import numbers, texts_among, tuples
from headscope.data.corpus import groups_of, row_keys
from headscope.errors import ConfigError, printable
from headscope.run import Run, load_run
from headscope.terminal import Bar, show_line, terminal
from headscope.training.train import train

try:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    raise ConfigError(
        "labels: cleanlab is not installed; pip install 'headscope[labels]' brings it"
    ) from None

SHOWN = 20  # rows of the table
CHARACTERS = 48  # of a text in it
COLUMNS = ("label", "suggested", "probability_label", "probability_suggested", "key")
Suspect = dict[str, Any]  # a row of the file: texts, COLUMNS


def labels(config: LabelsConfig, console: Console | None = None) -> list[Suspect]:
    """Print and write the training texts whose label is probably wrong, the worst first.

    Raises:
        ConfigError: for a run with data.multi_label.
        DataError, RunError: if the run's data are gone or have changed.
    """
    console = terminal(console)
    run = load_run(config.run)
    if run.config.data.multi_label:
        raise ConfigError(f"run={run.folder}: expected one label a text, got data.multi_label=true")
    with Bar(console, "reading texts"):
        corpus = own_corpus(run)
    given = corpus.splits["train"]
    groups = groups_of(given) if corpus.groups is None else corpus.groups
    folds = folds_of(groups, config.folds, run.config.seed)
    shares = np.zeros((len(given), len(run.labels)))
    with tempfile.TemporaryDirectory(prefix="headscope-") as temporary:
        for fold in range(config.folds):
            rows = np.flatnonzero(folds == fold)
            name = f"training without fold {fold + 1} of {config.folds}"
            with Bar(console, name):
                others = given.select(np.flatnonzero(folds != fold))
                parts = {"train": others, "validation": corpus.splits["validation"]}
                parts["test"] = given.select(rows)
                other = trained_without(run, parts, Path(temporary) / f"fold_{fold}")
                shares[rows] = shares_of(other, given.select(rows), run.labels)
        found = suspects(given, run.labels, shares)
        folder = run.folder if run.is_writable else Path()  # else the current directory
        path = config.output or str(folder / "labels.csv")
        with row_writer(path, (*texts_among(given.column_names), *COLUMNS)) as write:
            for row in found.values():
                write(row)
    show(console, [*found.values()], len(given))
    lines = [f"kept in {path}"]
    if found:
        lines += [
            "delete the rows whose label is right; then train without the others:",
            f"    headscope train ... data.drop_rows={path}",
        ]
    show_line(console, "\n".join(lines))
    return [*found.values()]


def folds_of(groups: Int[np.ndarray, " N"], count: int, seed: int) -> Int[np.ndarray, " N"]:
    """Return a fold for each text; near-duplicates share one."""
    _, group = np.unique(groups, return_inverse=True)
    return (np.random.default_rng(seed).permutation(group.max() + 1) % count)[group]


def trained_without(run: Run, parts: dict[str, Dataset], folder: Path) -> Run:
    """Train by the run's settings on parts of its texts, and load the result."""
    folder.mkdir()
    seen = set(numbers(parts["train"], "label").tolist())
    for role, split in parts.items():
        rows = (row for row in named_rows(split, run.labels) if row["number"] in seen)
        lines = (json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
        (folder / f"{role}.jsonl").write_text("".join(lines), encoding="utf-8")
    own = run.config.data
    data = DataConfig(
        path=str(folder / "train.jsonl"),
        validation_path=str(folder / "validation.jsonl"),
        test_path=str(folder / "test.jsonl"),
        text_pair_column="text_pair" if own.text_pair_column else None,
        max_length=own.max_length,
        tokens_per_batch=own.tokens_per_batch,
        cache_dir=str(folder / "cache"),
    )
    train(quiet(replace(run.config, data=data), folder), Console(quiet=True))
    return load_run(folder / "run")


def quiet(config: TrainConfig, folder: Path) -> TrainConfig:
    """Return settings that train the network and nothing beside it."""
    return replace(
        config,
        name="run",
        outputs_dir=str(folder),
        resume=None,
        baseline=False,
        control=None,
        final=None,
        inspection=replace(config.inspection, enabled=False),
        trainer=replace(config.trainer, progress=False),
    )


def named_rows(split: Dataset, classes: list[str]) -> Iterable[dict[str, Any]]:
    """Yield each row with the name of its class, and its number."""
    columns = texts_among(split.column_names)
    for *texts, number in tuples(split, [*columns, "label"]):
        texts_by_column = dict(zip(columns, texts, strict=True))
        yield texts_by_column | {"label": classes[number], "number": number}


def shares_of(run: Run, split: Dataset, classes: list[str]) -> Float[np.ndarray, "N C"]:
    """Return the probabilities of texts; 0 for a class that the run has not seen."""
    columns = texts_among(split.column_names)
    texts = list(tuples(split, columns)) if len(columns) == 2 else list(split["text"])
    predictions = run.predict(texts)
    rows = [[answer.probabilities.get(name, 0.0) for name in classes] for answer in predictions]
    return np.array(rows).reshape(len(texts), len(classes))


def suspects(
    split: Dataset, classes: list[str], shares: Float[np.ndarray, "N C"]
) -> dict[int, Suspect]:
    """Return row -> text whose label is probably wrong, that of the least probability first."""
    given = numbers(split, "label")
    probabilities = np.clip(shares, 1e-6, None)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    quality = get_label_quality_scores(given, probabilities, method="self_confidence")
    is_suspect = find_label_issues(given, probabilities, n_jobs=1)
    order = np.argsort(quality, kind="stable")
    keys = row_keys(split, classes)
    found = {}
    for row in order[is_suspect[order]].tolist():
        likeliest = int(probabilities[row].argmax())
        texts = {name: split[row][name] for name in texts_among(split.column_names)}
        values = (
            classes[given[row]],
            classes[likeliest],
            round(float(quality[row]), 4),
            round(float(probabilities[row, likeliest]), 4),
            keys[row],
        )
        found[row] = texts | dict(zip(COLUMNS, values, strict=True))
    return found


def show(console: Console, found: list[Suspect], total: int) -> None:
    """Print the first rows."""
    title = f"{len(found)} of {total} training texts have a label that is probably wrong"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("label", "probability", "suggested", "text"):
        table.add_column(column, no_wrap=column != "text")
    for row in found[:SHOWN]:
        cells = (row["label"], f"{row['probability_label']:.3f}", row["suggested"])
        table.add_row(*(Text(printable(cell)) for cell in (*cells, row["text"][:CHARACTERS])))
    console.print(table)
