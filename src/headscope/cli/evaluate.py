"""evaluate(config): score a finished run, on its own splits or on other data."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor

from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.columns import (
    class_numbers,
    label_name,
    lists_in_text,
    numbers,
    split_labels,
    text_rows,
)
from headscope.data.rows import read_own
from headscope.data.splits import text_keys
from headscope.ground.errors import ConfigError, DataError, listed, shown, warn
from headscope.ground.files import check_links, write_free
from headscope.ground.plain_rows import Row, from_csv_cell
from headscope.ground.tables import csv_cell
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.study import warn_below_chance
from headscope.results.baseline import above, differences
from headscope.results.console import show_confusion, show_scores
from headscope.results.scores import SCORES, Scores, calibration, scores
from headscope.runs.folder import as_json
from headscope.runs.prediction import best_device, split_logits
from headscope.runs.run import Run, load_run
from headscope.runs.texts import texts_of
from headscope.settings.checks import message
from headscope.settings.commands import EvaluateConfig
from headscope.settings.config import absolute


def evaluate(config: EvaluateConfig, console: Console | None = None) -> Scores:
    """Print the scores and keep them in the run folder as evaluations/<data>-<split>.json.

    Those of a whole file are evaluations/<file>.json. Other scores of this name stay: then it is
    <data>-<split>_2.json and so on. Where the run folder cannot be written, a warning says that
    they are not kept.
    """
    console = terminal(console)
    run = load_run(config.run)
    check_links(run.folder)
    with Bar(console, "reading texts"):
        dataset, split = texts_of(config, run)
    data = config.data or run.config.data
    with Bar(console, "scoring"):
        rows = [*text_rows(dataset)]
        texts = TextBatches(run.encode(rows), numbers(dataset, "label"))
        sampler = TokenBudgetSampler(texts.texts.lengths, run.config.data.tokens_per_batch)
        batches = BatchLoader(texts, sampler)
        logits, targets = split_logits(run.model, batches, best_device(config.accelerator))
    found = scores(logits, targets, run.objective)
    is_file = config.data is not None and config.split is None and Path(data.path).is_file()
    of_split = "" if is_file else f", split {split}"  # all of a file is no split
    learned = ", which it was trained on" if config.data is None and split == "train" else ""
    title = f"{data.file_of(split)}{of_split}, {len(dataset)} texts{learned}"
    content = {
        "path": absolute(data.path),
        "split": split,
        "step": run.chosen.step,
        "texts": len(dataset),
        "labels": run.labels,
        **found.content(run.labels),
        "calibration": None,
    }
    table = {str(run.folder): found}
    if run.config.data.multi_label:
        show_scores(console, title, table)
    else:
        tempered = scores(logits.double() / run.temperature, targets)
        warn_below_chance(round(found.accuracy * len(dataset)), len(dataset), run.labels)
        if run.temperature != 1:
            table[f"at temperature {run.temperature:.3f}"] = tempered
        show_scores(console, title, table)
        content["calibration"] = calibration(run.temperature, {split: (found, tempered)})
    show_confusion(console, run.labels, found)
    is_learned = np.zeros(len(rows), bool)
    if config.data is not None or split == "test":
        is_learned = learned_by(run, rows)
    content["learned"] = show_learned(console, run, is_learned, logits, targets)
    if config.against is not None:
        theirs, is_theirs = _answers(config, run, rows, split)
        is_new = ~(is_learned | is_theirs)
        content["against"] = compared(console, config, run, logits, targets, theirs)
        if is_new.any() and not is_new.all():
            show_line(console, f"on the {is_new.sum()} texts that neither run has learned:")
            others = [answer for answer, new in zip(theirs, is_new, strict=True) if new]
            found_new = compared(console, config, run, logits[is_new], targets[is_new], others)
            content["against"]["without learned texts"] = found_new
    name = Path(data.path).stem + ("" if is_file else f"-{split}")
    try:
        kept = write_free(run.folder / "evaluations" / f"{name}.json", as_json(content))
    except OSError as error:
        warn(f"these scores are not kept: {error}")
    else:
        show_line(console, f"kept in {kept}")
    return found


# Texts that a run has seen say nothing about others.


def learned_by(run: Run, texts: list[tuple[str, ...]]) -> np.ndarray:
    """Tell which texts a run was trained or chosen on, [N] of bool; none of an older run."""
    if run.setup.learned is None:
        return np.zeros(len(texts), bool)
    found: np.ndarray = np.isin(text_keys(texts), run.setup.learned.numpy())
    return found


def show_learned(
    console: Console,
    run: Run,
    is_learned: np.ndarray,
    logits: Float[Tensor, "N C"],
    targets: Int[Tensor, "N *C"],
) -> dict[str, Any] | None:
    """Print how many texts a run has learned, and its scores on the others; return both."""
    count = int(is_learned.sum())
    if count == 0:
        return None
    show_line(console, learned_line(run, is_learned))
    if count == len(is_learned):
        return {"texts": count, "without": None}
    found = scores(logits[~is_learned], targets[~is_learned], run.objective)
    values = ", ".join(f"{SCORES[name]} {value:.4f}" for name, value in found.values().items())
    show_line(console, f"without them, on {len(is_learned) - count} texts: {values}")
    return {"texts": count, "without": found.values()}


def learned_line(run: Run, is_learned: np.ndarray) -> str:
    """Return how many texts a run has learned."""
    count = f"{is_learned.sum()} of {len(is_learned)} texts"
    return f"note: {count} are in what {run.folder} was trained or chosen on"


# Against another run, or predictions in a file.


def _answers(
    config: EvaluateConfig, run: Run, texts: list[tuple[str, ...]], split: str
) -> tuple[list[list[str]], np.ndarray]:
    """Return the classes that the other one gives each text, and which texts it has learned."""
    path = str(config.against)
    own = run.config.data
    if not Path(path).is_dir():
        return _answers_in(path, run, texts), np.zeros(len(texts), bool)
    other = load_run(path)
    theirs = other.config.data
    for key in ("multi_label", "text_pair_column"):
        if bool(getattr(theirs, key)) != bool(getattr(own, key)):
            given = getattr(theirs, key)
            raise ConfigError(message("against", f"a run with data.{key} as {run.folder}", given))
    digests = [each.setup.digests.get(split, {}).get("texts") for each in (run, other)]
    if other.setup.learned is None and config.data is None and digests[0] != digests[1]:
        warn(f"against={path}: was trained on other splits, so it may have learned these texts")
    is_learned = learned_by(other, texts)
    if is_learned.any():
        warn(learned_line(other, is_learned).removeprefix("note: "))
    return [each.labels for each in other.predict(texts)], is_learned


def _answers_in(path: str, run: Run, texts: list[tuple[str, ...]]) -> list[list[str]]:
    """Return the column `prediction` of a file that has a row for each text."""

    def fits(rows: list[Row]) -> bool:
        answers = _predictions(rows, f"against={path}", run)
        return {*run.labels, ""}.issuperset(chain.from_iterable(answers))

    rows = read_own(path, "prediction", fits)
    if len(rows) != len(texts):
        expected = f"expected a row for each of {len(texts)} texts"
        raise DataError(f"against={path}: {expected}, got {len(rows)}")
    column = run.config.data.text_column
    for number, (row, (text, *_)) in enumerate(zip(rows, texts, strict=True)):
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
    # Such as of a table that has lost our other columns: there a ' may stand before a formula.
    unguarded = {name: from_csv_cell(name) for name in {*chain.from_iterable(answers)}}
    numbers = class_numbers(run.labels, [*unguarded, *unguarded.values()])
    names = {name: run.labels[number] for name, number in numbers.items()}
    names = {name: names[bare] for name, bare in unguarded.items() if bare in names} | names
    return [[names.get(name, name) for name in answer] for answer in answers]


def compared(
    console: Console,
    config: EvaluateConfig,
    run: Run,
    logits: Float[Tensor, "N C"],
    targets: Int[Tensor, "N *C"],
    theirs: list[list[str]],
) -> dict[str, Any]:
    """Print the differences on the same texts, and return them as JSON.

    An answer that is no class of the run, such as "" where the other one abstains, is wrong.
    """
    truth = run.objective.has(targets, len(run.labels))
    ours = run.objective.predicted(run.objective.probabilities(logits.double()))
    others = torch.tensor([[label in answer for label in run.labels] for answer in theirs])
    if not others.any():
        raise DataError(
            f"against={config.against}: expected the classes {listed(run.labels)}, got "
            f"{listed(sorted({name for answer in theirs for name in answer}))}"
        )
    is_right = (ours == truth).all(dim=1)
    is_other_right = (others == truth).all(dim=1)
    found = differences(ours, others, truth)
    only_ours = int((is_right & ~is_other_right).sum())
    only_theirs = int((is_other_right & ~is_right).sum())
    name = str(config.against)
    accuracy = is_other_right.double().mean().item()
    show_line(console, f"{name}: accuracy {accuracy:.4f}")
    show_line(console, above(name, found))
    show_line(console, f"only this run is right: {only_ours} texts; only {name}: {only_theirs}")
    return {
        "name": name,
        "accuracy": accuracy,
        "differences": found,
        "only this run is right": only_ours,
        "only the other is right": only_theirs,
    }
