"""labels(config): texts of a run's splits whose label is probably wrong.

Each text is classified by a network that has not seen it: the run's own settings, trained on the
other folds of all splits. Where it finds another class ten times as likely, the text is listed, the
least likely label first (self-confidence: Northcutt et al. 2021, Confident Learning: Estimating
Uncertainty in Dataset Labels). N texts, C classes.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets
from jaxtyping import Float
from pandas import DataFrame
from rich.console import Console

from headscope.data.columns import numbers, text_rows, texts_among
from headscope.data.corpus import groups_of, row_keys
from headscope.data.evidence import assign_folds
from headscope.data.source import column_of
from headscope.data.splits import Rows, joined
from headscope.ground.errors import ConfigError, UserWarningMessage
from headscope.ground.plain_rows import renamed
from headscope.ground.tables import write_rows
from headscope.ground.terminal import Bar, plain_table, show_line, terminal
from headscope.runs.run import Run, load_run
from headscope.runs.texts import own_corpus
from headscope.settings.checks import command, override
from headscope.settings.commands import LabelsConfig
from headscope.training.train import train

ODDS = 10.0  # of the suggested class against the given label, from which a text is listed
SHOWN = 20  # rows of the table
CHARACTERS = 40  # of a text in it
Suspect = dict[str, Any]  # a row of the file


def labels(config: LabelsConfig, console: Console | None = None) -> list[Suspect]:
    """Print and write the texts whose label is probably wrong, the worst first.

    Raises:
        ConfigError: for a run with data.multi_label, or an id_column that the data lack.
        DataError, RunError: if the run's data are gone or have changed.
    """
    console = terminal(console)
    run = load_run(config.run)
    if run.config.data.multi_label:
        raise ConfigError(f"run={run.folder}: expected one label a text, got data.multi_label=true")
    show_line(console, f"{config.folds} networks are trained, each for as long as the run was")
    with Bar(console, "reading texts"):
        corpus = own_corpus(run)
        texts = concatenate_datasets([*corpus.splits.values()])
        rows = joined([corpus.rows[role] for role in corpus.splits])
        source_rows = {role: corpus.rows[role].source_row for role in corpus.splits}
        ids = []
        if config.id_column is not None:
            ids = column_of(run.config.data, source_rows, config.id_column, "id_column")
    shares = cross_fitted(run, (texts, rows), config.folds, console)
    roles = np.repeat([*source_rows], [*map(len, source_rows.values())])
    found = suspects(texts, run.labels, shares)
    found = found.assign(split=roles[found.index], row=rows.source_row[found.index])
    suspicious: list[Suspect] = found.to_dict("records")
    columns = [*found]
    if config.id_column is not None:  # the index is the number of the text
        columns += renamed({config.id_column: None}, dict.fromkeys(columns))
        suspicious = [
            row | {columns[-1]: ids[at]} for at, row in zip(found.index, suspicious, strict=True)
        ]
    write_rows(config.output, suspicious, columns, is_sheet=True)
    show_line(console, f"{len(found)} of {len(texts)} texts have a label that is probably wrong")
    _show(console, config.output, found)
    return suspicious


def _show(console: Console, output: str, found: DataFrame) -> None:
    """Print the first texts of the file, and what to do with it."""
    shown = ["label", "suggested", "split", "text", "probability_label"]
    cells = found[shown].head(SHOWN).map(lambda cell: str(cell)[:CHARACTERS]).to_numpy().tolist()
    console.print(plain_table(["given label", *shown[1:-1]], ["probability"], cells))
    lines = [f"kept in {output}: {len(found)} rows"]
    if len(found):
        lines += [
            "delete the rows whose label is right, write the right class into the column",
            "corrected of others, and train again; rows without a correction are left out:",
            f"    {command('headscope train ...', **{'data.drop_rows': output})}",
        ]
    show_line(console, "\n".join(lines))


def cross_fitted(
    run: Run, given: tuple[Dataset, Rows], count: int, console: Console
) -> Float[np.ndarray, "N C"]:
    """Return the probabilities of each text's classes, by a network trained on the other folds."""
    texts, beside = given
    folds = assign_folds(groups_of(beside), count, run.config.seed)
    shares = np.zeros((len(texts), len(run.labels)))
    with tempfile.TemporaryDirectory(prefix="headscope-") as temporary:
        for fold in range(count):
            rows = np.flatnonzero(folds == fold)
            with Bar(console, f"training without fold {fold + 1} of {count}"):
                others = np.flatnonzero(folds != fold)
                parts = {
                    "train": (texts.select(others), beside.select(others)),
                    "test": (texts.select(rows), beside.select(rows)),
                }
                other = trained_without(run, parts, Path(temporary) / f"fold_{fold}")
                answers = other.predict([*text_rows(texts.select(rows))])
                table = DataFrame([each.probabilities for each in answers])
                # 0 for a class that it has not seen.
                shares[rows] = table.reindex(columns=run.labels, fill_value=0.0)
    return shares


def trained_without(run: Run, parts: dict[str, tuple[Dataset, Rows]], folder: Path) -> Run:
    """Train by the run's settings, and nothing beside it, on other texts; return the best."""
    folder.mkdir()
    own = run.config.data
    train_texts, train_rows = parts["train"]
    seen = {*numbers(train_texts, "label").tolist()}
    for role, (split, beside) in parts.items():
        columns = [*texts_among(split.column_names), *beside.cut_by]
        cells = zip(text_rows(split), *beside.cut_by.values(), numbers(split, "label"), strict=True)
        rows = (
            dict(zip(columns, [*texts, *cut_by], strict=True)) | {"label": run.labels[number]}
            for texts, *cut_by, number in cells
            if number in seen
        )
        write_rows(str(folder / f"{role}.jsonl"), rows, [])
    changed = {
        "name": "run",
        "outputs_dir": str(folder),
        "resume": None,
        "baseline": False,
        "control": None,
        "inspection.enabled": False,
        "trainer.progress": False,
        "trainer.logger": "tensorboard",
        "data": {
            "path": str(folder / "train.jsonl"),
            "test_path": str(folder / "test.jsonl"),
            "text_pair_column": "text_pair" if own.text_pair_column else None,
            **{f"{name}_column": name for name in train_rows.cut_by},
            "max_length": own.max_length,
            "tokens_per_batch": own.tokens_per_batch,
            "cache_dir": str(folder / "cache"),
        },
    }
    with warnings.catch_warnings():  # the run has told the same of the same texts
        warnings.simplefilter("ignore", UserWarningMessage)
        train(override(run.config, changed), Console(quiet=True))
    return load_run(folder / "run")


def suspects(texts: Dataset, classes: list[str], shares: Float[np.ndarray, "N C"]) -> DataFrame:
    """Return the texts whose label is probably wrong, that of the least probability first."""
    given = numbers(texts, "label")
    names = np.array(classes, dtype=object)
    table = texts.select_columns(texts_among(texts.column_names)).to_pandas()
    table = table.assign(
        label=names[given],
        suggested=names[shares.argmax(axis=1)],
        corrected="",
        probability_label=shares[np.arange(len(given)), given],
        probability_suggested=shares.max(axis=1),
        key=row_keys(texts, classes),
    )
    is_likelier = table["probability_suggested"] >= ODDS * table["probability_label"]
    found = table[is_likelier & (table["label"] != table["suggested"])]
    return found.sort_values("probability_label", kind="stable").round(4)
