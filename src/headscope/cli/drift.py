"""drift(config): what differs between new texts and those that a run knows, by month or in all."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from headscope.cli.predict import columns_of, least_confidence, read_texts
from headscope.data.columns import as_cell, text_rows, times_of
from headscope.ground.errors import ConfigError, DataError
from headscope.ground.tables import write_frame
from headscope.ground.terminal import Bar, plain_table, show_line, terminal
from headscope.pages.drift import drift_page
from headscope.results.drift import Observed, changes, observe
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import own_corpus
from headscope.settings.checks import message, override
from headscope.settings.commands import DriftConfig
from headscope.tab.html import write_page

DRIFTED = 3  # the exit code of a command that found drift


@dataclass(frozen=True)
class Drift:
    """What has changed: `table` as results/drift.py has it, `found` its rows beyond the bounds."""

    table: pd.DataFrame
    found: pd.DataFrame

    @property
    def exit_code(self) -> int:
        """3 if a bound is crossed, for a scheduler."""
        return DRIFTED if len(self.found) else 0


def drift(config: DriftConfig, console: Console | None = None) -> Drift:
    """Compare texts with those of validation and test, or of another file; write a page and a csv.

    A measure has drifted if its adjusted p is at most `alpha` and its value has changed by
    `min_change` or more.

    Raises:
        ConfigError, DataError, RunError: as of `predict`; or if the run's own texts are gone.
    """
    console = terminal(console)
    run = load_run(config.run)
    least = least_confidence(config, run)
    run.model.to(best_device(config.accelerator))
    with Bar(console, "reading and labelling texts"):
        periods = _periods(config, run, least)
        if config.against is None:
            splits = own_corpus(run, ["validation", "test"]).splits
            known = [row for role in ("validation", "test") for row in text_rows(splits[role])]
            reference = observe(run, known, least)
        else:
            against = override(config, {"input": config.against, "by": None})
            (reference,) = _periods(against, run, least).values()
    table = changes(reference, periods, config.alpha)
    is_word = table["measure"].str.startswith("word: ")
    change = (table["value"] - table["reference value"]).abs()
    is_found = ~is_word & (table["adjusted"] <= config.alpha) & (change >= config.min_change)
    found = Drift(table, table[is_found])
    _write(config, console, found, table[~is_word], table[is_word], len(reference.measures))
    return found


def _periods(config: DriftConfig, run: Run, least: float | None) -> dict[str, Observed]:
    """Return what the run makes of the input's texts, of each month, or of all."""
    columns = columns_of(config, run)
    given = [*read_texts(config, columns, Counter())]
    if not given:
        raise DataError(f"{config.input}: has no texts")
    observed = observe(run, [texts for _, texts in given], least)
    if config.by is None:
        return {Path(config.input).name: observed}
    if config.by not in given[0][0]:
        raise ConfigError(message("by", "a column of the input", config.by))
    times = times_of([as_cell(row.get(config.by)) for row, _ in given], config.input)
    if times.dtype.kind != "M":
        raise ConfigError(message("by", "a column of dates such as 2026-11-27", config.by))
    months = pd.DatetimeIndex(times).strftime("%Y-%m").to_numpy()
    return {month: observed.only(months == month) for month in sorted({*months})}


def _write(
    config: DriftConfig,
    console: Console,
    drift: Drift,
    measures: pd.DataFrame,
    words: pd.DataFrame,
    size: int,
) -> None:
    """Print the measures that have drifted, and write the page and the table."""
    other = config.against or "the run's own validation and test texts"
    bounds = f"alpha={config.alpha:g}, min_change={config.min_change:g}"
    number = measures["period"].nunique()
    lines = [f"{len(drift.found)} of {len(measures)} measures have drifted ({bounds})"]
    lines += [f"{number} periods, beside {size} texts of {other}"]
    columns = ["period", "measure", "texts", "value", "reference value", "adjusted"]
    show_line(console, *lines)
    cells = drift.found[columns].round(4).to_numpy().tolist()
    if cells:
        console.print(plain_table(columns[:2], columns[2:], cells))
    page = Path(config.output)
    title = f"Drift of {Path(config.input).name}, by run {Path(config.run).name}"
    found = [f"{row[0]}: {row[1]} {row[3]} (before: {row[4]})" for row in cells]
    shown = words[[*columns]].round(4)
    write_page(page, drift_page(title, [*lines, *found], measures.round(4), shown))
    write_frame(config.table_file, drift.table.round(6))
    show_line(console, f"page:       {page}; table: {config.table_file}")
