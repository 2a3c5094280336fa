"""A sweep's table on a screen: what differs between jobs beside the scores, in as much room as there is.

Nothing heavy is imported: a sweep that ends at a mistake is shown at once.
"""

from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headscope.training.widths import fits

# What a row of sweep.csv has beside the overrides. What stands last is left out first where there is no room.
SWEEP_SCORES = ("accuracy", "micro_f1", "macro_f1", "loss", "calibration_error")
RESULTS = (*SWEEP_SCORES, "seconds")
STATUS = "status"
WIDEST_VALUE = 30  # of an override, such as a path; a longer one goes on in a second line
Row = dict[str, str]


def show_sweep(console: Console, folder: Path, rows: list[Row]) -> None:
    """Print the table, what all jobs have in common, why jobs failed, and the line to type next."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in ("job", STATUS, *RESULTS)))
    differing = [key for key in keys if len({row.get(key) for row in rows}) > 1]
    results = [name for name in RESULTS if any(name in row for row in rows)]
    table, num_shown = _fitting(console, rows, headings(differing, keys), results)
    console.print(table)
    lines = {
        "all jobs": "  ".join(f"{key}={rows[0][key]}" for key in keys if key not in differing),
        "no room for": ", ".join(results[num_shown:]),
        **{f"job {_number(row)}": row[STATUS] for row in rows if row[STATUS] != "done"},
        "kept in": f"{folder}/sweep.csv",
    }
    for name, words in lines.items():
        if words:
            console.print(f"{name}: {words}", highlight=False, markup=False, soft_wrap=True)
    look = f"now look:   [bold]tensorboard --logdir {escape(str(folder))}[/]"
    console.print(look, highlight=False, soft_wrap=True)


def headings(shown: list[str], keys: list[str]) -> dict[str, str]:
    """Return each shown key's last part, model.num_heads -> num_heads, or the whole key if others end alike."""
    ends = Counter([key.split(".")[-1] for key in keys] + ["job", STATUS, *RESULTS])
    return {key: end if ends[end := key.split(".")[-1]] == 1 else key for key in shown}


def _fitting(console: Console, rows: list[Row], shown: dict[str, str], results: list[str]) -> tuple[Table, int]:
    """Return the first table that fits, each narrower than the one before, and how many of the results it has."""
    fewest = min(1, len(results))
    attempts = [(len(results), False), *((count, True) for count in range(len(results), fewest - 1, -1))]
    for count, is_narrow in attempts:
        table = _table(rows, shown, results[:count], is_narrow)
        if fits(table, console):
            break
    return table, count


def _table(rows: list[Row], shown: dict[str, str], results: list[str], is_narrow: bool) -> Table:
    """Return a table whose headings, if it is narrow, go on in a second line after each point and underscore."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if is_narrow else 2, 0, 0))
    for name in ("job", *shown.values()):
        table.add_column(_broken(name, is_narrow), overflow="fold", max_width=WIDEST_VALUE)
    for name in results:
        table.add_column(_broken(name, is_narrow), justify="right", no_wrap=True)
    for row in rows:
        cells = [_number(row), *(row.get(name, "") for name in (*shown, *results))]
        table.add_row(*map(escape, cells))
    return table


def _broken(heading: str, is_narrow: bool) -> str:
    return escape(heading.replace("_", "_\n").replace(".", ".\n") if is_narrow else heading)


def _number(row: Row) -> str:
    return row["job"].split("-")[0]
