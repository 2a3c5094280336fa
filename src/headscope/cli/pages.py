"""page(config): write the page on which you type a text and see every head decide.

report(config): write what a run learned over many texts, and the same page beneath them.

drift(config): write what differs between new texts and those that a run knows, by month or in all.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from headscope.cli.predict import columns_of, read_texts
from headscope.data.columns import as_cell, text_rows, times_of
from headscope.ground.errors import (
    ConfigError,
    DataError,
    LivePageError,
    RunError,
    UserError,
    listed,
    warn,
)
from headscope.ground.files import check_links
from headscope.ground.tables import write_frame
from headscope.ground.terminal import Bar, plain_table, show_line, terminal
from headscope.pages.drift import drift_page
from headscope.pages.examples import choose_examples
from headscope.pages.live import MB, Example, live_html
from headscope.pages.pack import check_supported
from headscope.pages.report import TextsReport, report_of, write_report
from headscope.results.console import show_words
from headscope.results.drift import Observed, changes, observe
from headscope.runs.prediction import best_device
from headscope.runs.rules import rule_of
from headscope.runs.run import Run, load_run
from headscope.runs.texts import learned_by, own_corpus, texts_and_labels, texts_of
from headscope.settings.checks import message, override
from headscope.settings.commands import DriftConfig, PageConfig, ReportConfig
from headscope.tab.html import write_page

REFERENCE = ("validation", "test")  # splits
NAMED = 8  # words that came or went
Look = Callable[[list[tuple[str, ...]]], Observed]  # at texts
PRINTED = ["period", "measure", "texts", "value", "reference", "adjusted p"]


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
    """Write a report and its words beside it, and return what they hold."""
    console = terminal(console)
    run = load_run(config.run)
    if Path(config.output).parent.resolve() == run.folder.resolve():
        check_links(run.folder)
    with Bar(console, "reading texts"):
        dataset, split = texts_of(config, run)
    run.model.to(best_device(config.accelerator))
    show_line(console, f"{len(dataset)} {split} texts; words: up to {config.seconds:g} s")
    with Bar(console, "contributions of words"):
        texts = texts_and_labels(dataset, run.objective, run.labels)
        found = report_of(run, *texts, config.seconds)
        name = split if config.data is None else Path(config.data.path).stem
        path = Path(config.output)
        file = config.words
        size = write_report(run, found, name, path, file)
    show_words(console, found.summary())
    words = f"{file.name}: words of {len(found.parts)} of {len(dataset)} texts"
    show_line(console, f"report:     {config.output} ({size:.1f} MB), {words}")
    return found


@dataclass(frozen=True)
class Drift:
    """All that was compared, as `headscope.results.drift.changes` has it, and what has drifted."""

    table: pd.DataFrame
    found: pd.DataFrame

    @property
    def exit_code(self) -> int:
        """3 if a measure has drifted, for a scheduler."""
        return 3 if len(self.found) else 0


def drift(config: DriftConfig, console: Console | None = None) -> Drift:
    """Compare texts with those of validation and test, or of another file; write a page and a csv.

    A measure has drifted if its adjusted p is at most `alpha` and its value has changed by
    `min_change` or more.

    Raises:
        ConfigError, DataError, RunError: as of `predict`; or if the run's own texts are gone.
    """
    console = terminal(console)
    run = load_run(config.run)
    run.model.to(best_device(config.accelerator))
    with Bar(console, "reading and labelling texts"):
        rule = rule_of(config, run, console)
        look = partial(observe, run, rule=rule)
        periods = _periods(config, run, look)
        reference = _reference(config, run, look)
    table = changes(reference, periods, config.alpha)
    is_word = table["measure"].str.startswith("word: ")
    is_large = (table["value"] - table["reference"]).abs() >= config.min_change
    found = table[~is_word & is_large & (table["adjusted p"] <= config.alpha)]
    lines = [
        f"{len(found)} of {len(table[~is_word])} measures have drifted: adjusted p of at most "
        f"{config.alpha:g} and a change of {config.min_change:g} or more, beside "
        f"{len(reference.measures)} texts of {config.against or 'validation and test'}"
    ]
    show_line(console, *lines)
    for row in found[PRINTED].round(4).astype(str).to_numpy().tolist():
        lines.append(f"{row[0]}: {row[1]} {row[3]}, before {row[4]}")
    console.print(
        plain_table(PRINTED[:2], PRINTED[2:], found[PRINTED].round(4).to_numpy().tolist())
    )
    for period, words in table[is_word].groupby("period", sort=False):
        is_more = words["value"] > words["reference"]
        names = words["measure"].str.removeprefix("word: ")
        came, went = (listed(names[rows].head(NAMED).tolist()) for rows in (is_more, ~is_more))
        lines.append(f"{period}: words that came: {came or 'none'}; that went: {went or 'none'}")
        show_line(console, lines[-1])
    title = f"Drift of {Path(config.input).name}, by run {run.folder.resolve().name}"
    tables = {"Measures": table[~is_word], "Words that came and went": table.loc[is_word, PRINTED]}
    write_page(Path(config.output), drift_page(title, lines, tables))
    write_frame(config.table, table.round(6))
    show_line(console, f"page:       {config.output}; table: {config.table}")
    return Drift(table, found)


def _reference(config: DriftConfig, run: Run, look: Look) -> Observed:
    if config.against is not None:
        earlier = override(config, {"input": config.against, "by": None})
        (reference,) = _periods(earlier, run, look).values()
        return reference
    splits = own_corpus(run, REFERENCE).splits
    texts = [texts for role in REFERENCE for texts in text_rows(splits[role])]
    return look(texts)


def _periods(config: DriftConfig, run: Run, look: Look) -> dict[str, Observed]:
    """Return what the run makes of the input's texts, of each month or of all."""
    given = [*read_texts(config, columns_of(config, run), Counter())]
    if not given:
        raise DataError(f"{config.input}: has no texts")
    is_learned = learned_by(run, [texts for _, texts in given])
    if is_learned.any():  # which the run knows better than any new ones
        count = f"{is_learned.sum()} of {len(given)} texts of {config.input}"
        if is_learned.all():
            raise DataError(f"{count} are learned by the run; give others")
        warn(f"{count} are left out: the run has learned them")
        given = [row for row, learned in zip(given, is_learned, strict=True) if not learned]
    observed = look([texts for _, texts in given])
    if config.by is None:
        return {Path(config.input).name: observed}
    if config.by not in given[0][0]:
        raise ConfigError(message("by", "a column of the input", config.by))
    times = times_of([as_cell(row.get(config.by)) for row, _ in given], config.input)
    if times.dtype.kind != "M":
        raise ConfigError(message("by", "a column of dates such as 2026-11-27", config.by))
    months = pd.DatetimeIndex(times).strftime("%Y-%m").to_numpy()
    return {month: observed.only(months == month) for month in sorted({*months})}
