"""page(config): write the page on which you type a text and see every head decide.

report(config): write what a run learned over many texts, and the same page beneath them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from headscope.cli.evaluate import data_of, texts_of
from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError, LivePageError, RunError, UserError
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.live.page import MB, Example, Kind, check_live, live_html
from headscope.live.report import TextsReport, write_report
from headscope.record.schema import label_text
from headscope.runs.prediction import best_device, probabilities
from headscope.runs.run import TOKENS_PER_BATCH, Run, load_run
from headscope.settings.commands import PageConfig, ReportConfig
from headscope.tab.page import write_page
from headscope.training.console import show_words
from headscope.training.heads import texts_and_labels

LONGEST = 600  # characters of an example, where there are such texts


def page(config: PageConfig, console: Console | None = None) -> Path:
    """Write the page and return its path.

    Raises:
        RunError: if the run's network cannot run inside a page; the message says why.
    """
    console = terminal(console)
    run = load_run(config.run)
    parts = tuple(text for text in (config.text, config.text_pair) if text is not None)
    is_pair = run.config.data.text_pair_column is not None
    if config.text_pair is not None and not is_pair:
        raise ConfigError(f"text_pair: expected null for {run.folder}, whose texts are no pairs")
    with _rejected(run):
        check_live(run, config.dtype, config.max_mb)  # before examples are chosen
    examples: list[Example] = []
    if config.examples:
        try:
            with Bar(console, "choosing examples"):
                examples = choose_examples(run, data_of(run), config.examples)
        except UserError as error:
            show_line(console, f"no examples: {error}")
    if not parts and examples:
        parts = tuple(examples[0].parts)
    with Bar(console, "writing the page"), _rejected(run):
        content = live_html(run, parts, config.dtype, config.max_mb, examples)
    path = Path(config.output)
    write_page(path, content)
    show_line(console, f"page:       {path} ({len(content) / MB:.1f} MB, {config.dtype})")
    return path


def report(config: ReportConfig, console: Console | None = None) -> TextsReport:
    """Write report.html and words.csv beside it, and return what they hold."""
    console = terminal(console)
    run = load_run(config.run)
    with Bar(console, "reading texts"):
        dataset, split = texts_of(config, run)
    run.model.to(best_device(config.accelerator))
    show_line(console, f"{len(dataset)} {split} texts; words: up to {config.seconds:g} s")
    with Bar(console, "contributions of words"):
        found = run.report(*texts_and_labels(dataset, run.objective, run.labels), config.seconds)
        name = split if config.data is None else Path(config.data.path).stem
        size = write_report(run, found, name, Path(config.output))
    show_words(console, found.summary())
    words = f"words.csv: words of {len(found.parts)} of {len(dataset)} texts"
    show_line(console, f"report:     {config.output} ({size:.1f} MB), {words}")
    return found


@contextmanager
def _rejected(run: Run) -> Iterator[None]:
    """Name the run in what is said of a network that the page cannot run."""
    try:
        yield
    except LivePageError as error:
        raise RunError(f"run={run.folder}: cannot run inside a page: {error}") from None


def choose_examples(run: Run, data: TextDataModule, count: int) -> list[Example]:
    """Return validation texts in thirds: confident and right, most wrong, and least sure.

    Of right ones the classes take turns. Short texts come first; each text stands once.
    """
    split = data.corpus.splits["validation"]
    labels = data.labels("validation")
    shares = probabilities(
        run.model,
        data.encoded["validation"],
        TOKENS_PER_BATCH["cpu"],
        run.device,
        objective=run.objective,
        temperature=run.temperature,
    )
    truth = run.objective.has(torch.from_numpy(labels), len(run.labels))
    predicted = run.objective.predicted(shares)
    correct = (predicted == truth).all(dim=1).numpy()
    # How sure: the distance of the nearest two classes, or of a probability from its threshold.
    ranked = shares.sort(dim=1, descending=True).values.numpy()
    sure = np.abs(shares.numpy() - 0.5).min(axis=1)
    if not run.config.data.multi_label and len(run.labels) > 1:
        sure = ranked[:, 0] - ranked[:, 1]
    columns = texts_among(split.column_names)
    texts = [tuple(split[row][column] for column in columns) for row in range(len(split))]
    size = np.array([sum(map(len, parts)) for parts in texts])
    is_short = (size >= 20) & (size <= LONGEST)
    names = [label_text(name) for name in run.objective.names(truth, run.labels)]
    orders: dict[Kind, list[int]] = {
        "right": _in_turn(np.lexsort([-sure, ~is_short, ~correct]), names),
        "wrong": np.lexsort([-sure, ~is_short, correct]).tolist(),
        "unsure": np.lexsort([sure, ~is_short]).tolist(),
    }
    chosen: dict[int, Kind] = {}
    for place, (kind, order) in enumerate(orders.items()):
        fits = [row for row in order if kind == "unsure" or correct[row] == (kind == "right")]
        free = [row for row in fits if row not in chosen]
        share = (count + len(orders) - 1 - place) // len(orders)
        chosen |= dict.fromkeys(free[:share], kind)
    return [Example(kind, names[row], texts[row]) for row, kind in chosen.items()]


def _in_turn(order: np.ndarray, names: list[str]) -> list[int]:
    """Return rows so that each class's first comes before any class's second."""
    seen: dict[str, int] = {}
    turns = []
    for row in order.tolist():
        turns.append((seen.get(names[row], 0), row))
        seen[names[row]] = seen.get(names[row], 0) + 1
    return [row for _, row in sorted(turns, key=lambda turn: turn[0])]
