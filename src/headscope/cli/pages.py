"""page(config): write the page on which you type a text and see every head decide.

report(config): write what a run learned over many texts, and the same page beneath them.
"""

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from pandas import DataFrame
from rich.console import Console

from headscope.ground.errors import LivePageError, RunError, UserError
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.live.pack import check_supported
from headscope.live.page import MB, Example, Kind, live_html
from headscope.live.report import TextsReport, write_report
from headscope.record.schema import label_text
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import own_corpus, texts_and_labels, texts_of
from headscope.settings.commands import PageConfig, ReportConfig
from headscope.tab.html import write_page
from headscope.training.console import show_words

SHORTEST = 20  # characters of an example, where there are such texts
LONGEST = 600


def page(config: PageConfig, console: Console | None = None) -> Path:
    """Write the page and return its path.

    Raises:
        RunError: if the run's network cannot run inside a page; the message says why.
    """
    console = terminal(console)
    run = load_run(config.run)
    examples: list[Example] = []
    try:
        check_supported(run)  # before examples are chosen
        if config.examples:
            with Bar(console, "choosing examples"):
                examples = _examples(run, config.examples, console)
        texts = examples[0].parts if examples else ()
        with Bar(console, "writing the page"):
            content = live_html(run, texts, config.dtype, config.max_mb, examples)
    except LivePageError as error:
        raise RunError(f"run={run.folder}: cannot run inside a page: {error}") from None
    path = Path(config.output)
    write_page(path, content)
    show_line(console, f"page:       {path} ({len(content) / MB:.1f} MB): open it in a browser")
    return path


def _examples(run: Run, count: int, console: Console) -> list[Example]:
    """Return validation texts; none, with the reason, where they are gone or have changed."""
    try:
        return choose_examples(run, own_corpus(run).splits["validation"], count)
    except UserError as error:
        show_line(console, f"no examples: {error}")
        return []


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


def choose_examples(run: Run, split: Dataset, count: int) -> list[Example]:
    """Return texts of a split in thirds: confident and right, most wrong, and least sure.

    Of right ones the classes take turns. Short texts come first; each text stands once.
    """
    texts, labels = texts_and_labels(split, run.objective, run.labels)
    predictions = run.predict(texts)
    shares = np.sort([[*each.probabilities.values()] for each in predictions])  # [N, C]
    sure = shares[:, -1] - shares[:, -2]  # the distance of the nearest two classes
    if run.config.data.multi_label:
        sure = np.abs(shares - 0.5).min(axis=1)  # of a probability from its threshold
    table = DataFrame({"label": [*map(label_text, labels)], "sure": sure})
    table["is_right"] = table["label"] == [each.label for each in predictions]
    table["is_odd"] = [not SHORTEST <= len("".join(text)) <= LONGEST for text in texts]
    surest = table.sort_values(["is_odd", "sure"], ascending=[True, False])
    turns = surest[surest["is_right"]].groupby("label").cumcount()
    orders: dict[Kind, Any] = {
        "right": turns.sort_values(kind="stable").index,
        "wrong": surest.index[~surest["is_right"]],
        "unsure": table.sort_values(["is_odd", "sure"]).index,
    }
    chosen: dict[int, Kind] = {}
    for place, (kind, order) in enumerate(orders.items()):
        free = [row for row in order if row not in chosen]
        chosen |= dict.fromkeys(free[: (count + 2 - place) // 3], kind)
    return [Example(kind, table["label"][row], texts[row]) for row, kind in chosen.items()]
