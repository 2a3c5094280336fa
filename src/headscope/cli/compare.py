"""compare(a, b, texts): two runs side by side over texts, in Python and as a page of HTML.

Classes are compared by name. Every difference is that of `a` less `b` on the same texts, with its
95 % interval.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from scipy.stats import binomtest
from scipy.stats import t as student_t
from sklearn.metrics import f1_score

from headscope.data.columns import (
    known_classes,
    label_name,
    lists_in_text,
    split_labels,
    text_columns,
)
from headscope.data.rows import read_own
from headscope.ground.errors import ConfigError, DataError, RunError, listed, shown, warn
from headscope.ground.files import home, read_json
from headscope.ground.plain_rows import Row, from_csv_cell
from headscope.ground.tables import csv_cell, write_frame
from headscope.ground.terminal import show_line
from headscope.model.objective import Answer, as_labels
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.record.explanation import signed
from headscope.record.schema import label_text
from headscope.record.words import certain
from headscope.results.baseline import Interval, differences
from headscope.results.metrics import ABLATION
from headscope.runs.folder import METRICS
from headscope.runs.run import Run, TextOrPair
from headscope.tab.html import compare_page, write_page

Score = tuple[float, float, Interval | None]
MOST_TEXTS = 500  # that the page lists
MOST_WORDS = 12  # of each class
MOST_HEADS = 40
PRINTED = 5  # words of each class


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same N texts.

    Attributes:
        names: of the two runs, as tables have them.
        texts: each one text, or the two of a pair.
        given: the class or classes of each by name; None where they are unknown.
        answers: of each run the class or classes of each text, by name.
        scores: accuracy and macro-F1 -> of each run, and of the first less the second with its 95 %
            interval, paired over the texts; {} without labels.
        heads: of each run its heads: `head`, `loss` (what ablating it adds to the loss over that
            run's validation texts, in nats), `low`, `high` (of the 95 % interval).
        words: `class`, `word`, and the mean log-odds that each run has for it: `first`, `second`,
            `difference`, `interval` (half of its 95 % interval), `n` texts, and `certain` (how much
            they surely differ, 0 if the interval has 0 in it); the surest difference first.
    """

    names: tuple[str, str]
    texts: Sequence[tuple[str, ...]]
    given: Sequence[Answer | None]
    answers: tuple[list[Answer], list[Answer]]
    scores: Mapping[str, Score]
    heads: tuple[pd.DataFrame, pd.DataFrame]
    words: pd.DataFrame

    def differing(self) -> pd.DataFrame:
        """Return the texts to which the runs give different classes: a row each."""
        columns = ["given", *self.names]
        rows = zip(self.texts, self.given, *self.answers, strict=True)
        found = [
            [" ⏐ ".join(parts), *("" if each is None else label_text(each) for each in labels)]
            for parts, *labels in rows
            if labels[1] != labels[2]
        ]
        return pd.DataFrame(found, columns=["text", *columns])

    def most(self, label: str, count: int = MOST_WORDS) -> pd.DataFrame:
        """Return the words for which the runs differ most surely, of one class."""
        own = self.words[self.words["class"] == label]
        return own[own["certain"] != 0].head(count).drop(columns="certain")

    def accuracy_interval(self, run: int) -> tuple[float, float]:
        """Return the 95 % interval (Wilson) of a run's accuracy; `run` is 0 or 1."""
        share, other, _ = self.scores["accuracy"]
        right = round((other if run else share) * len(self.texts))
        found = binomtest(right, len(self.texts)).proportion_ci(0.95, "wilson")
        return float(found.low), float(found.high)

    def save(self, path: str | Path) -> Path:
        """Write the page, and beside it the tables as csv: NAME.words.csv and NAME.texts.csv."""
        path = home(path)
        title = f"Compared: {self.names[0]} and {self.names[1]} on {len(self.texts):,} texts"
        write_page(path, compare_page(title, self.content()))
        write_frame(path.with_suffix(".words.csv"), self.words.drop(columns="certain"))
        write_frame(path.with_suffix(".texts.csv"), self.differing())
        return path

    def content(self) -> dict[str, Any]:
        """Return what the page shows."""
        texts = self.differing()
        scores = [
            [name, first, second, difference]
            for name, (first, second, difference) in self.scores.items()
        ]
        return {
            "names": self.names,
            "size": len(self.texts),
            "scores": scores,
            "intervals": [self.accuracy_interval(run) for run in (0, 1)] if self.scores else [],
            "heads": [_rows(heads.head(MOST_HEADS)) for heads in self.heads],
            "words": {label: _rows(self.most(label)) for label in self.words["class"].unique()},
            "texts": texts.head(MOST_TEXTS).values.tolist(),
            "differing": len(texts),
        }


def compare(
    a: str | Path | Run,
    b: str | Path | Run,
    texts: Sequence[TextOrPair],
    labels: Sequence[Answer] | None = None,
    seconds: float = 20.0,
) -> Comparison:
    """Compare two runs over the same texts.

        found = headscope.compare("outputs/first", "outputs/second", texts, labels)
        found.scores["accuracy"]  # of each, and the difference with its interval
        found.differing()         # the texts that they do not agree on
        found.save("compared.html")

    Both are runs of headscope, of the same kind, and their classes are compared by name; a model of
    transformers that is no run cannot stand here. Words are split within `seconds` for each run.

    Raises:
        ValueError: without texts; for another number of labels; or for texts of another kind.
        ConfigError: if one run reads pairs or gives several labels, and the other does not.
        RunError: for a folder that holds no run.
    """
    first, second = (_loaded(run) for run in (a, b))
    for key in ("multi_label", "text_pair_column"):
        kinds = [bool(getattr(run.config.data, key)) for run in (first, second)]
        if kinds[0] != kinds[1]:
            raise ConfigError(f"b: expected a run with data.{key} as {first.folder}")
    reports = [run.report(texts, labels, seconds) for run in (first, second)]
    names = known_classes(first.labels, second.labels)
    renamed = [{}, {own: other for own, other in names.items() if own != other}]
    answers = [
        [_renamed(each.labels if first.config.data.multi_label else each.label, new) for each in of]
        for of, new in zip([report.predictions for report in reports], renamed, strict=True)
    ]
    tables = [
        report.words.assign(**{"class": [new.get(name, name) for name in report.words["class"]]})
        for report, new in zip(reports, renamed, strict=True)
    ]
    return Comparison(
        names=_names(first.folder, second.folder),
        texts=reports[0].texts,
        given=reports[0].given,
        answers=(answers[0], answers[1]),
        scores=_scores(reports[0].given, answers, first.labels) if labels is not None else {},
        heads=(_heads(first), _heads(second)),
        words=_words(*tables),
    )


def _loaded(run: str | Path | Run) -> ShownRun:
    if isinstance(run, ShownRun):
        return run
    if isinstance(run, Run):
        return ShownRun(run.folder, run.setup, run.model, run.chosen)
    return load_shown(run)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Return the names of two folders; no path, since a page may be sent to somebody else."""
    names = (first.resolve().name, second.resolve().name)
    return names if names[0] != names[1] else (f"{names[0]} (a)", f"{names[1]} (b)")


def _renamed(answer: Answer, new: Mapping[str, str]) -> Answer:
    if isinstance(answer, str):
        return new.get(answer, answer)
    return sorted(new.get(name, name) for name in answer)


def _scores(
    given: Sequence[Answer | None], answers: Sequence[Sequence[Answer]], labels: Sequence[str]
) -> dict[str, Score]:
    """Return accuracy and macro-F1 of both, and their difference with its interval."""
    known = [[label or "" for label in given], *answers]
    every = [
        *dict.fromkeys([*labels, *(name for of in known for own in of for name in as_labels(own))])
    ]
    truth, *both = [
        torch.tensor([[name in as_labels(own) for name in every] for own in of]) for of in known
    ]
    found = differences(both[0], both[1], truth)
    first, second = ((own == truth).all(dim=1).double().mean().item() for own in both)
    f1s = [  # of the classes that some text has or is predicted to have
        float(f1_score(truth, of, labels=torch.where((of | truth).any(dim=0))[0], average="macro"))
        for of in both
    ]
    return {
        "accuracy": (first, second, found["accuracy"]),
        "macro_f1": (f1s[0], f1s[1], found.get("macro_f1")),
    }


def _heads(run: Run) -> pd.DataFrame:
    """Return what ablating each head of a run adds to its loss, if that was measured."""
    try:
        ablation = read_json(run.folder / METRICS)["training"][ABLATION]
    except (RunError, KeyError):
        ablation = {"texts": 0, "heads": {}}
    half = float(student_t.ppf(0.975, max(1, ablation["texts"] - 1)))
    rows = [
        [name.replace("_", " "), loss, loss - half * error, loss + half * error]
        for name, (loss, error) in ablation["heads"].items()
    ]
    return pd.DataFrame(
        sorted(rows, key=lambda row: -row[1]), columns=["head", "loss", "low", "high"]
    )


def _words(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the words of both tables, those first whose means surely differ.

    The interval of a difference is that of two independent means, which is too wide where the two
    runs rise and fall on the same texts.
    """
    keys = ["class", "word"]
    own = [table[[*keys, "mean", "interval", "n"]] for table in (first, second)]
    both = own[0].merge(own[1], on=keys, suffixes=("", "_b"))
    table = pd.DataFrame(
        {
            **{key: both[key] for key in keys},
            "first": both["mean"],
            "second": both["mean_b"],
            "difference": both["mean"] - both["mean_b"],
            "interval": np.hypot(both["interval"], both["interval_b"]),
            "n": both[["n", "n_b"]].min(axis=1),
        }
    )
    ranks = [certain(of.assign(mean=of["difference"])) for _, of in table.groupby("class")]
    table["certain"] = pd.concat(ranks) if ranks else 0.0
    order = table["certain"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _rows(table: pd.DataFrame) -> list[list[Any]]:
    columns = table.astype(object)
    rows: list[list[Any]] = columns.where(table.notna(), None).values.tolist()
    return rows


def write_beside(console: Console, both: Comparison, folder: Path) -> str | None:
    """Print the words that differ, write the page into a run's folder, and return its name."""
    for label in both.words["class"].unique():
        rows = both.most(label, PRINTED)[["word", "difference"]].values.tolist()
        words = [f"{word} {signed(difference)}" for word, difference in rows]
        show_line(console, f"  words that differ, {label}: {', '.join(words) or 'none surely'}")
    path = folder / "evaluations" / f"{'-'.join(both.names)}.html"
    try:
        path.parent.mkdir(exist_ok=True)
        both.save(path)
    except OSError as error:
        warn(f"the page of both runs is not kept: {error}")
        return None
    show_line(console, f"side by side: {path}: open it in a browser")
    return path.name


# Predictions in a file.


def answers_in(path: str, run: Run, texts: list[tuple[str, ...]]) -> list[list[str]]:
    """Return the column `prediction` of a file that has a row for each text."""

    def fits(rows: list[Row]) -> bool:
        with warnings.catch_warnings():  # said of the rows that are taken
            warnings.simplefilter("ignore")
            answers = _predictions(rows, f"against={path}", run)
        return {*run.labels, ""}.issuperset(chain.from_iterable(answers))

    rows = read_own(path, "prediction", fits)
    if len(rows) != len(texts):
        expected = f"expected a row for each of {len(texts)} texts"
        raise DataError(f"against={path}: {expected}, got {len(rows)}")
    columns = text_columns(run.config.data)
    if rows and not {*columns} & rows[0].keys():
        warn(f"against={path}: has no column {columns[0]!r}, so its rows are taken in their order")
    for number, (row, parts) in enumerate(zip(rows, texts, strict=True)):
        for column, text in zip(columns, parts, strict=True):
            given = row.get(column, text)
            cell = csv_cell(text)
            if given not in (text, cell, from_csv_cell(cell)):  # which lacks control characters
                raise DataError(f"against={path}, row {number}: has another text: {shown(given)}")
    return _predictions(rows, f"against={path}", run)


def _predictions(rows: list[Row], where: str, run: Run) -> list[list[str]]:
    """Return the classes of each row by name; others as they are written."""
    data = run.config.data
    given = [row.get("prediction") for row in rows]
    cells = ["" if cell is None else cell for cell in given]
    if data.multi_label:
        cells = [
            split_labels(cell, data.label_separator) if isinstance(cell, str) else cell
            for cell in lists_in_text(cells, where, data)
        ]
    answers = [
        [*map(label_name, cell)] if isinstance(cell, list) else [label_name(cell)] for cell in cells
    ]
    named = {*chain.from_iterable(answers)}
    names = known_classes(run.labels, named)
    if names and (unknown := sorted(named - {*names, ""})):
        warn(f"{where}: {listed(unknown)} are no classes of {run.folder}, and count as wrong")
    return [[names.get(name, name) for name in answer] for answer in answers]
