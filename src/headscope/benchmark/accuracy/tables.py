"""The tables of the accuracy suite: a row's mean over seeds and how far seeds lie apart, data set by data set."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

from headscope.benchmark.accuracy.kept import Record
from headscope.benchmark.accuracy.plan import Run
from headscope.benchmark.accuracy.queue import Found
from headscope.benchmark.accuracy.result import SHOWN, SPLITS
from headscope.benchmark.accuracy.rows import Row
from headscope.benchmark.page import Table

COLUMNS = (
    "", "test accuracy", "test macro-F1", "validation accuracy", "validation macro-F1", "seeds", "seconds",
    "choosing, s", "parameters", "chosen by validation",
)  # fmt: skip
MEANING = (
    "Percent: mean over seeds ± standard deviation over seeds (of a sample, n - 1), which tells how far another seed "
    "may lie, not how far other texts would. The split is the same for all rows and seeds, and test was scored once by "
    "each run, with what validation chose."
)
CLOCKS = (
    "Seconds: a run from its texts to the scores of both splits, with what was chosen, without starting Python. "
    "Choosing: all that was tried, by seed 0 alone; other seeds take what it chose. Of a training, the step whose "
    "weights had the best macro-F1 in validation."
)


def data_table(data: str, found: Found, notes: Sequence[str] = ()) -> Table:
    """Return a data set's table, a line for each row."""
    here = {run: record for run, record in found.items() if run.data == data}
    first = next(iter(here.values())).result
    sizes = " / ".join(f"{first.texts[role]:,}" for role in ("train", "validation", "test"))
    details = dict.fromkeys(f"{run.row.label}: {record.result.detail}." for run, record in here.items())
    title = f"{data}: {sizes} texts of train / validation / test, {first.classes} classes"
    return Table(title, COLUMNS, [_line(row, _records(here, row)) for row in rows_of(here)], (*details, *notes))


def rows_of(found: Found) -> list[Row]:
    """Return the rows in their order."""
    return list(dict.fromkeys(run.row for run in found))


def _records(found: Found, row: Row) -> list[Record]:
    return [record for run, record in found.items() if run.row == row]


def _line(row: Row, records: Sequence[Record]) -> tuple[str, ...]:
    results = [record.result for record in records]
    choosing = max(result.choosing_seconds for result in results)
    return (
        row.label,
        *(percent([result.scores[split][score] for result in results]) for split in SPLITS for score in SHOWN),
        str(len(results)),
        f"{fmean(result.seconds for result in results):.0f}",
        f"{choosing:.0f}" if choosing else "",
        f"{results[0].parameters / 1e6:.2f} M",
        "; ".join(dict.fromkeys(result.chosen for result in results)),
    )


def percent(shares: Sequence[float]) -> str:
    """Return the mean in percent, with the standard deviation if there are two or more."""
    spread = f" ± {100 * stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * fmean(shares):.1f}{spread}"


def overview(split: str, found: Found) -> Table:
    """Return one split's scores of all data sets: a line for each row, and the mean over the data sets."""
    names = list(dict.fromkeys(run.data for run in found))
    lines = [(row.label, *_overview_cells(split, row, names, found)) for row in rows_of(found)]
    title = f"{split.capitalize()}, all data sets: accuracy / macro-F1"
    return Table(title, ("", *names, "mean of data sets"), lines)


def _overview_cells(split: str, row: Row, names: Sequence[str], found: Found) -> list[str]:
    means = [
        [
            fmean(record.result.scores[split][score] for record in _records(_on(name, found), row))
            for score in SHOWN
        ]
        for name in names
    ]  # fmt: skip
    means.append([fmean(column) for column in zip(*means, strict=True)])
    return [" / ".join(f"{100 * share:.1f}" for share in pair) for pair in means]


def _on(data: str, found: Found) -> dict[Run, Record]:
    return {run: record for run, record in found.items() if run.data == data}


def origins(found: Found) -> str:
    """Return the sentence that says which code made the results, on what and when, and beside how many others."""
    told = Counter(
        f"at commit {record.commit} on {record.device}, {record.date}"
        + (f", threads {record.threads}" if record.threads else "")
        + (f", {record.jobs} runs at a time, which slow each other down" if record.jobs > 1 else "")
        for record in found.values()
    )
    return f"Runs: {'; '.join(f'{count} {where}' for where, count in told.items())}."
