"""What is printed before and after training, and of a sweep."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from headscope.data.datamodule import UNREAD
from headscope.ground.errors import listed
from headscope.ground.terminal import UNBOUNDED, plain_table, show_line
from headscope.record.explanation import signed
from headscope.results.baseline import CHARACTERS_1_3, above
from headscope.results.metrics import (
    ABLATION,
    CONTRIBUTIONS,
    DETAILS,
    HEADLINE,
    WORDS,
    Results,
)
from headscope.results.scores import SCORES, Scores
from headscope.settings.checks import command
from headscope.settings.config import REPORT, DataConfig

MOST_CLASSES = 12  # a wider confusion matrix does not fit on a screen; TensorBoard has it
MOST_HEADS = 6  # in a table
LITTLE = 0.05  # of the tokens not read: a longer max_length would read no more
FEW_TEXTS = 50  # one text is two points of accuracy
FEW_TO_LEARN = 2_000  # training texts: below, a pretrained encoder was better on all English sets
COUNTS = ("TP", "FN", "FP", "TN")


def show_facts(console: Console, folder: Path, facts: dict[str, Any]) -> None:
    """Print the run folder and the facts about the texts."""
    show_line(console, "", str(folder))
    for name, value in facts.items():
        show_line(console, f"  {name}: {_readable(value)}")


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part)}" for name, part in value.items())
    if isinstance(value, list):
        return listed(value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def show_results(console: Console, results: Results) -> None:
    """Print scores, confusion matrix, what the heads do, seconds, and the command to type next."""
    facts = results.facts_of_training
    when = f"epoch {facts['best_epoch']} (step {facts['best_step']} of {facts['steps']})"
    loss = facts["best_validation_loss"]
    at = " at the temperature that is best for it" if results.tempered else ""
    show_line(console, f"best checkpoint: {when}, validation loss {loss:.4f}{at}")
    rows = {"headscope": results.test}
    if results.temperature != 1:
        rows[f"at temperature {results.temperature:.3f}"] = results.tempered["test"]
    for other in results.compared.values():
        rows[other.name] = other.scores
    data = results.config.data
    source = Path(data.file_of(data.test_split or "test")).name
    title = f"test split of {source}, {len(results.targets)} texts"
    show_scores(console, title, rows)
    for line in _comparisons(results):
        show_line(console, line)
    if results.tempered and results.temperature == 1:
        show_line(console, "temperature: 1; no other lowers the loss of held-out validation texts")
    show_confusion(console, results.labels, results.test)
    if ABLATION in facts:
        show_line(console, f"heads, on validation texts: {facts[HEADLINE]}")
        show_line(console, facts[DETAILS])
        show_heads(console, facts[ABLATION]["heads"], facts.get(CONTRIBUTIONS, {}).get("heads", ()))
    if WORDS in facts:
        show_line(
            console,
            "words that add most to each class: mean ± 95 % interval (texts with the word):",
        )
        show_words(console, facts[WORDS])
    parts = [f"{name} {value:.0f} s" for name, value in results.seconds.items()]
    show_line(console, "  ".join(parts))
    show_line(console, f"run folder: {results.folder}")
    page = results.folder / REPORT
    if page.exists():
        show_line(console, f"all test texts: {page}")
    parent = Path(results.config.outputs_dir)
    if not results.folder.resolve().is_relative_to(parent.resolve()):  # the run has moved
        parent = results.folder.parent
    show_line(console, "now look:   ", f"tensorboard --logdir {shlex.quote(str(parent))}")


def _comparisons(results: Results) -> Iterator[str]:
    """Yield how far the run is from each classifier that it is compared with, and what may help."""
    if len(results.targets) < FEW_TEXTS:
        yield f"fewer than {FEW_TEXTS} test texts: scores and intervals say little"
    for other in results.compared.values():
        yield above(other.name, other.differences)
    if line := what_would_help(results):
        yield line


def what_would_help(results: Results) -> str:
    """Return what to try of few texts, or where TF-IDF is better by more than its interval.

    It is better if the 95 % interval of the difference of accuracy on test lies below 0.
    """
    count = results.facts_of_data.get("sizes", {}).get("train", FEW_TO_LEARN)
    baseline = results.compared.get("baseline")
    if count < FEW_TO_LEARN and results.config.model.checkpoint[1] is None:
        few = f"{count} training texts are few;"
        if baseline is not None and CHARACTERS_1_3 in baseline.name:  # MiniLM reads English
            return f"{few} a pretrained encoder of their language may be better: docs/pretrained.md"
        tried = _on_same_texts("experiment=pretrained", results.config.data)
        return f"{few} if they are English, a pretrained encoder is likely to be better: {tried}"
    if baseline is None or baseline.differences["accuracy"][2] >= 0:
        return ""
    ways = ["more texts"]
    tried = _on_same_texts("-m sweep=choose", results.config.data)
    if results.facts_of_data.get(UNREAD, 0) > LITTLE:
        ways.insert(0, "longer texts")
        tried += f" data.max_length=auto,{2 * results.config.data.most_tokens}"
    if results.config.model.checkpoint[1] is None:
        ways.insert(0, "a pretrained encoder")
    tries = f": {tried}" if len(ways) > 1 else ""
    return f"TF-IDF is better here, by more than its interval: {', '.join(ways)} may help{tries}"


def _on_same_texts(words: str, data: DataConfig) -> str:
    """Return a command that trains on the same texts."""
    usual = DataConfig()
    changed = {"data": "files", "data.path": data.path}
    for name in (field.name for field in fields(DataConfig)):
        value = getattr(data, name)
        if name not in ("path", "max_length") and value != getattr(usual, name):
            changed[f"data.{name}"] = value
    return command(f"headscope train {words}", **changed)


def show_heads(
    console: Console,
    increases: Mapping[str, Sequence[float]],
    contributions: Iterable[Sequence[float]] = (),
    page: str = "in the Heads tab",
) -> None:
    """Print what each head is worth, the largest loss without it first; of many heads a few."""
    rows = [
        [name, f"{signed(increase, 4)} ± {error:.4f}"]
        for name, (increase, error) in increases.items()
    ]
    for row, contribution in zip(rows, chain.from_iterable(contributions), strict=False):
        row.append(signed(contribution))
    rows.sort(key=lambda row: -increases[row[0]][0])
    headings = ["added loss without it", "passes through"][: len(rows[0]) - 1]
    console.print(plain_table([""], headings, rows[:MOST_HEADS]))
    if len(rows) > MOST_HEADS:
        show_line(console, f"{len(rows) - MOST_HEADS} more heads: {page}")


def show_scores(console: Console, title: str, rows: dict[str, Scores]) -> None:
    """Print a table with a row for each model."""
    cells = [
        [model, *(f"{value:.4f}" for value in scores.values().values())]
        for model, scores in rows.items()
    ]
    show_line(console, title)
    known = next(iter(rows.values())).values()  # of all the same
    headings = [SCORES[name].replace(" ", "\n") for name in known]
    console.print(plain_table([""], headings, cells))


def show_confusion(console: Console, labels: list[str], scores: Scores) -> None:
    """Print the confusion matrix, or with multi_label counts for each class, if it fits."""
    title = "rows: label, columns: prediction"
    headings: Sequence[str] = labels
    counts = scores.confusion
    if scores.micro_f1 is not None:
        title = "texts of each class: true and false, positives and negatives"
        headings = COUNTS
        counts = []
        for (tn, fp), (fn, tp) in scores.confusion:
            counts.append([tp, fn, fp, tn])
    elif len(labels) > MOST_CLASSES:
        return
    rows = ([label, *row] for label, row in zip(labels, counts, strict=True))
    table = plain_table([""], headings, rows)
    width = console.measure(table, options=console.options.update(width=UNBOUNDED)).maximum
    if headings is labels and width > console.width:
        show_line(console, f"the confusion matrix needs {width} columns; TensorBoard has it")
        return
    show_line(console, title)
    console.print(table)


def show_words(console: Console, words: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
    """Print the words that add most to the log-odds of each class: mean ± interval (texts)."""
    for label, numbers in words.items():
        named = []
        for word, (mean, interval, n) in numbers.items():
            error = "" if interval is None else f" ± {interval:.2f}"
            named.append(f"{word} {signed(mean)}{error} ({n})")
        listed_words = ", ".join(named) or "no word whose interval excludes 0"
        show_line(console, f"  {label}: {listed_words}")
