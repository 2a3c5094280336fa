"""What is printed before and after training, and of a sweep. Nothing heavy is imported before it is needed."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headscope.errors import listed
from headscope.record.contributions import signed
from headscope.training.report import ABLATION, ANSWER, PUT, Report
from headscope.training.scores import SCORES, MultiLabelScores, Scores

MOST_CLASSES = 12  # a wider confusion matrix does not fit on a screen; TensorBoard has it
LEAST_NAME = 10  # letters of a class's name, with its number, that are shown in a line of the matrix at the least
MOST_ROWS = 50
MOST_HEADS = 8  # that are named in a line
COUNTS = ("TP", "FN", "FP", "TN")
UNBOUNDED = 10_000  # a screen on which any table fits
BREAKS = re.compile(
    r"(?<=[\s/_,])"
)  # after which a name may be broken: between the parts of a path or of a run's name
STATUS = "status"
WIDEST_VALUE = 30  # of an override, such as a path; a longer one goes on in a second line
Row = dict[str, str]


class _Lasting:
    """A stream whose loss is no error: when its reader is gone, such as a closed terminal, the rest goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Hand over what was written, if anybody reads."""
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Go on without standard output or standard error when nobody reads it any more, until the block is left."""
    out, err = (stream and cast(TextIO, _Lasting(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def show_facts(console: Console, folder: Path, facts: dict[str, Any]) -> None:
    """Print what a reader of the results should know about the texts."""
    _line(console, "", str(folder))
    for name, value in facts.items():
        _line(console, f"  {name}: {_readable(value)}")


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part)}" for name, part in value.items())
    if isinstance(value, list):
        return listed(value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def show_report(console: Console, report: Report) -> None:
    """Print the table of scores, the confusion matrix, where the time went, and the line to type next."""
    tempered = report.calibration.row("test") if report.calibration else {}
    rows = {"headscope": report.test, **tempered, report.baseline_name: report.baseline}
    title = f"test split of {report.config.data.path}, {len(report.targets)} texts"
    facts = report.facts_of_training
    if (best := facts.get("best validation macro-F1")) is not None:
        when = f"epoch {facts['kept epoch']} (step {facts['kept step']} of {facts['steps']})"
        _line(console, f"kept: the weights of {when}, the best validation macro-F1, {best:.4f}")
    show_scores(console, title, {name: found for name, found in rows.items() if found})
    show_confusion(console, report.labels, report.test)
    _show_put(console, facts)
    _show_without(console, facts)
    _line(console, "  ".join(f"{name} {value:.0f} s" for name, value in report.seconds.items()))
    _line(console, f"run folder: {report.folder}")
    if report.most_wrong is not None:
        _line(console, f"most wrong: {report.most_wrong}")
    _line(console, "now look:   ", f"tensorboard --logdir {report.config.outputs_dir}")


def _show_put(console: Console, facts: dict[str, Any]) -> None:
    """Say in one line what heads, feed-forward blocks and constant put for the predicted class, the most first."""
    if (put := facts.get(PUT)) is None:
        return
    heads = {
        f"layer {layer} head {head}": value
        for layer, row in enumerate(put["heads"])
        for head, value in enumerate(row)
    }
    order = sorted(heads, key=lambda name: -abs(heads[name]))
    parts = [f"{name} {signed(heads[name])}" for name in order[:MOST_HEADS]]
    if others := order[MOST_HEADS:]:
        parts.append(f"the other {len(others)} heads {signed(sum(heads[name] for name in others))}")
    parts += [
        f"feed-forward {signed(sum(put['feedforward']))}",
        f"constant {signed(put['constant'])}",
    ]
    said = f"put for the predicted class, in nats, mean over {put['texts']} validation texts"
    _line(console, f"{said}: {', '.join(parts)}")


def _show_without(console: Console, facts: dict[str, Any]) -> None:
    """Say which heads matter, and by how much the loss rises without each of the first of them."""
    if (found := facts.get(ABLATION)) is None:
        return
    _line(console, facts[ANSWER])
    heads = found["heads"]
    order = sorted(heads, key=lambda name: -abs(heads[name][0]))
    parts = [f"{name} {heads[name][0]:+.2g} ± {heads[name][1]:.1g}" for name in order[:MOST_HEADS]]
    words = "change of the loss without one head alone, for which others can stand in"
    _line(console, f"{words}: {', '.join(parts)}")


def show_scores(console: Console, title: str, rows: dict[str, Scores]) -> None:
    """Print a table with a row for each model; long names and headings go on in a second line if they must."""
    known = [name for name in SCORES if all(hasattr(found, name) for found in rows.values())]
    cells = [[f"{getattr(found, score):.4f}" for score in known] for found in rows.values()]
    headings, names = [SCORES[score] for score in known], list(rows)
    table = _numbers_table(headings, names, cells)
    if not _fits(table, console):
        headings = [heading.replace(" ", "\n") for heading in headings]
        room = console.width - _width(_numbers_table(headings, [""] * len(names), cells), console)
        table = _numbers_table(headings, [broken(name, room) for name in names], cells)
    _title(console, title)
    console.print(table)


def show_confusion(console: Console, labels: list[str], found: Scores) -> None:
    """Print the confusion matrix, or a row of counts for each class where a text has several, if it fits a screen."""
    if isinstance(found, MultiLabelScores):
        rows = [[tp, fn, fp, tn] for (tn, fp), (fn, tp) in found.confusion]
        _title(console, "texts of each class: true and false, positives and negatives")
        console.print(_counts_table(COUNTS, labels[:MOST_ROWS], rows[:MOST_ROWS]))
    elif len(labels) <= MOST_CLASSES:
        _show_matrix(console, labels, found.confusion)


def _show_matrix(console: Console, labels: list[str], counts: list[list[int]]) -> None:
    """Print the confusion matrix; with numbers for the classes above it where their names have no room."""
    title, table = "rows: label, columns: prediction", _counts_table(labels, labels, counts)
    if not _fits(table, console):
        numbers = [str(number) for number in range(1, len(labels) + 1)]
        names = [f"{number}: {label}" for number, label in zip(numbers, labels, strict=True)]
        if not _fits(
            _counts_table(numbers, [name[:LEAST_NAME] for name in names], counts, room=0), console
        ):
            _title(
                console,
                f"no room for the confusion matrix in {console.width} columns; a wider window has it",
            )
            return
        title, table = f"{title}, by their numbers", _counts_table(numbers, names, counts, room=0)
    _title(console, title)
    console.print(table)


def _title(console: Console, title: str) -> None:
    console.print(title, style="table.title", highlight=False, markup=False, soft_wrap=True)


def _line(console: Console, words: str, bold: str = "") -> None:
    """Print a line that nothing breaks, without reading markup in it."""
    console.print(Text(words).append(bold, style="bold"), soft_wrap=True)


def _numbers_table(
    headings: Sequence[str], names: list[str], rows: list[list[Any]], **options: Any
) -> Table:
    """Return a table with a row of numbers for each name."""
    table = Table(**options)
    table.add_column("", overflow="fold")  # cut names may look alike
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for name, numbers in zip(names, rows, strict=True):
        table.add_row(escape(name), *map(str, numbers))
    return table


def _counts_table(
    headings: Sequence[str], labels: list[str], rows: list[list[int]], room: int = 1
) -> Table:
    return _numbers_table(headings, labels, rows, box=box.SIMPLE_HEAD, padding=(0, room, 0, 0))


def show_sweep(
    console: Console, folder: Path, rows: list[Row], jobs: list[Row], results: Sequence[str]
) -> None:
    """Print a row for each configuration, what all have in common, why jobs failed, and the line to type next."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in results))
    differing = [key for key in keys if len({row.get(key) for row in rows}) > 1 or key == "seeds"]
    found = [name for name in results if any(name in row for row in rows)]
    table, num_shown = _fitting(console, rows, headings(differing, [*keys, *results]), found)
    console.print(table)
    lines = {
        "all jobs": "  ".join(f"{key}={rows[0][key]}" for key in keys if key not in differing),
        "no room for": ", ".join(found[num_shown:]),
        **{job["job"]: job[STATUS] for job in jobs if job[STATUS] != "done"},
        "kept in": f"{folder}/sweep.csv",
    }
    for name, words in lines.items():
        if words:
            _line(console, f"{name}: {words}")
    if (folder / "best.yaml").exists():
        _line(console, f"best again: headscope train --config-dir {folder} --config-name best")
    _line(console, "now look:   ", f"tensorboard --logdir {folder}")


def headings(shown: list[str], keys: list[str]) -> dict[str, str]:
    """Return each shown key's last part, model.num_heads -> num_heads, or the whole key if others end alike."""
    ends = Counter(key.split(".")[-1] for key in keys)
    return {key: end if ends[end := key.split(".")[-1]] == 1 else key for key in shown}


def _fitting(
    console: Console, rows: list[Row], shown: dict[str, str], results: list[str]
) -> tuple[Table, int]:
    """Return the first table that fits, each narrower than the one before, and how many of the results it has."""
    fewest = min(1, len(results))
    attempts = [
        (len(results), False),
        *((count, True) for count in range(len(results), fewest - 1, -1)),
    ]
    for count, is_narrow in attempts:
        table = _table(rows, shown, results[:count], is_narrow)
        if _fits(table, console):
            break
    return table, count


def _table(rows: list[Row], shown: dict[str, str], results: list[str], is_narrow: bool) -> Table:
    """Return a table whose headings, if it is narrow, go on in a second line after each point and underscore."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if is_narrow else 2, 0, 0))
    for name in shown.values():
        table.add_column(_broken(name, is_narrow), overflow="fold", max_width=WIDEST_VALUE)
    for name in results:
        table.add_column(_broken(name, is_narrow), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(row.get(name, "")) for name in (*shown, *results)))
    return table


def _broken(heading: str, is_narrow: bool) -> str:
    return escape(heading.replace("_", "_\n").replace(".", ".\n") if is_narrow else heading)


def _fits(table: Table, console: Console) -> bool:
    return _width(table, console) <= console.width


def _width(table: Table, console: Console) -> int:
    """Return the columns of the screen that a table takes if nothing in it goes on in a second line."""
    return console.measure(table, options=console.options.update(width=UNBOUNDED)).maximum


def broken(name: str, width: int) -> str:
    """Return the name in lines of at most this width, each ending between two of its parts; a longer part stays."""
    lines = [""]
    for part in BREAKS.split(name):
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
