"""What is printed before and after training, and of a sweep."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headscope.errors import listed
from headscope.record.explanation import signed
from headscope.run_folder import ERRORS
from headscope.terminal import show_line
from headscope.training.report import ABLATION, CONTRIBUTIONS, DETAILS, HEADLINE, Report
from headscope.training.scores import SCORES, MultiLabelScores, Scores

MOST_CLASSES = 12  # a wider confusion matrix does not fit on a screen; TensorBoard has it
MOST_HEADS = 6  # in a table
SECONDS = {"causes (after training)": "ablation"}  # other names on screen
COUNTS = ("TP", "FN", "FP", "TN")
MIN_WIDTH = 14  # of a column whose cells are folded
UNBOUNDED = 10_000  # a screen on which any table fits
STATUS = "status"
Row = dict[str, str]


class _Lasting:
    """A stream that drops what is written when its reader is gone, such as a closed terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Continue without standard output or error when nobody reads it, until the block is left."""
    out, err = (stream and cast(TextIO, _Lasting(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def errors_once() -> Iterator[None]:
    """End TensorBoard's writer thread silently on a full disk, whose error is raised here too."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not isinstance(arguments.exc_value, OSError):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


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


def show_report(console: Console, report: Report) -> None:
    """Print scores, confusion matrix, what the heads do, seconds, and the command to type next."""
    facts = report.facts_of_training
    if (best := facts.get("best validation loss")) is not None:
        when = f"epoch {facts['kept epoch']} (step {facts['kept step']} of {facts['steps']})"
        show_line(console, f"best checkpoint: {when}, validation loss {best:.4f}")
    rows = {"headscope": report.test}
    if report.calibration is not None and report.temperature != 1:
        rows |= report.calibration.row("test")
    for other in report.compared.values():
        rows[other.name] = other.scores
    title = f"test split of {Path(report.config.data.path).name}, {len(report.targets)} texts"
    show_scores(console, title, rows)
    for other in report.compared.values():
        show_line(console, other.sentence())
    if report.calibration is not None and report.temperature == 1:
        show_line(console, "temperature: 1; no other lowers the loss of held-out validation texts")
    show_confusion(console, report.labels, report.test)
    if ABLATION in facts:
        show_line(console, facts[HEADLINE])
        show_line(console, facts[DETAILS])
        _show_heads(console, facts)
    seconds = report.seconds.items()
    parts = [f"{SECONDS.get(name, name)} {value:.0f} s" for name, value in seconds]
    show_line(console, "  ".join(parts))
    show_line(console, f"run folder: {report.folder}")
    show_line(console, f"wrong test texts: {report.folder / ERRORS}")
    show_line(console, "now look:   ", f"tensorboard --logdir {report.config.outputs_dir}")


def _show_heads(console: Console, facts: Mapping[str, Any]) -> None:
    """Print what each head is worth, the largest loss without it first; of many heads a few."""
    increases = facts[ABLATION]["heads"]
    contributions = {}
    if CONTRIBUTIONS in facts:
        for layer, of_heads in enumerate(facts[CONTRIBUTIONS]["heads"]):
            for head, value in enumerate(of_heads):
                contributions[f"layer {layer} head {head}"] = signed(value)
    rows = [
        [name, f"{signed(increase, 4)} ± {error:.4f}", contributions.get(name, "")]
        for name, (increase, error) in increases.items()
    ]
    rows.sort(key=lambda row: -increases[row[0]][0])
    numbers = ["loss without it", "contribution"][: 2 if contributions else 1]
    console.print(plain_table([""], numbers, rows[:MOST_HEADS]))
    if len(rows) > MOST_HEADS:
        show_line(console, f"{len(rows) - MOST_HEADS} more heads: in the Heads tab")


def show_scores(console: Console, title: str, rows: dict[str, Scores]) -> None:
    """Print a table with a row for each model."""
    known = [name for name in SCORES if all(hasattr(scores, name) for scores in rows.values())]
    cells = [
        [model, *(f"{getattr(scores, name):.4f}" for name in known)]
        for model, scores in rows.items()
    ]
    show_line(console, title)
    table, left_out = _fitting(console, [""], [SCORES[name] for name in known], cells)
    console.print(table)
    if left_out:
        show_line(console, f"no room here for {', '.join(left_out)}")


def show_confusion(console: Console, labels: list[str], scores: Scores) -> None:
    """Print the confusion matrix, or with multi_label counts for each class, if it fits."""
    title = "rows: label, columns: prediction"
    headings: Sequence[str] = labels
    counts = scores.confusion
    if isinstance(scores, MultiLabelScores):
        title = "texts of each class: true and false, positives and negatives"
        headings = COUNTS
        counts = [[tp, fn, fp, tn] for (tn, fp), (fn, tp) in counts]
    elif len(labels) > MOST_CLASSES:
        return
    table = plain_table(
        [""], headings, ([label, *row] for label, row in zip(labels, counts, strict=True))
    )
    width = console.measure(table, options=console.options.update(width=UNBOUNDED)).maximum
    if headings is labels and width > console.width:
        show_line(console, f"the confusion matrix needs {width} columns; TensorBoard has it")
        return
    show_line(console, title)
    console.print(table)


def _fitting(
    console: Console, texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]
) -> tuple[Table, Sequence[str]]:
    """Return a table within the width of the screen, and the numbers that it has no room for.

    Columns of `texts` are folded where they are wide. If that is not enough, the last ones of
    `numbers` go, but for the first.
    """
    rows = [*rows]
    room = console.width
    for column in zip(texts, *rows, strict=False):
        widest = max(cell_len(line) for cell in column for line in cell.split("\n"))
        room -= min(widest, MIN_WIDTH) + 2  # with the space between columns
    headings = [name.replace(" ", "\n") for name in numbers]
    wide = console.options.update(width=UNBOUNDED)
    count = len(numbers)
    while count > 1:
        beside = plain_table([], headings[:count], (row[len(texts) :] for row in rows))
        if console.measure(beside, options=wide).maximum <= room:
            break
        count -= 1
    table = plain_table(texts, headings[:count], rows)
    for numeric in table.columns[len(texts) :]:
        numeric.no_wrap = True
    return table, numbers[count:]


def plain_table(
    texts: Iterable[str], numbers: Iterable[str], rows: Iterable[Iterable[object]]
) -> Table:
    """Return a table with columns of texts and of numbers; further cells of a row are left out."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in texts:
        table.add_column(escape(name), overflow="fold")
    for name in numbers:
        table.add_column(escape(name), overflow="fold", justify="right")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell, _ in zip(row, table.columns, strict=False)))
    return table


def show_sweep(
    console: Console, folder: Path, rows: list[Row], jobs: list[Row], results: Sequence[str]
) -> None:
    """Print a row per configuration, what all share, why jobs failed, and the next command."""
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in results))
    differing = [key for key in keys if len({row.get(key) for row in rows}) > 1 or key == "seeds"]
    scores = [name for name in results if any(name in row for row in rows)]
    cells = [[row.get(name, "") for name in (*differing, *scores)] for row in rows]
    names = [key.replace(".", ".\n") for key in differing]
    table, left_out = _fitting(console, names, [_heading(name) for name in scores], cells)
    console.print(table)
    lines = {
        "all jobs": "  ".join(f"{key}={rows[0][key]}" for key in keys if key not in differing),
        **{job["job"]: job[STATUS] for job in jobs if job[STATUS] != "done"},
        "saved": f"{folder}/sweep.csv" + (f", also {', '.join(left_out)}" if left_out else ""),
    }
    for name, words in lines.items():
        if words:
            show_line(console, f"{name}: {words}")
    if (folder / "best.yaml").exists():
        command = f"headscope train --config-dir {folder} --config-name best"
        show_line(console, "best again: ", command)
    show_line(console, "now look:   ", f"tensorboard --logdir {folder}")


def _heading(result: str) -> str:
    """Return the heading of a result: test_macro_f1 is "test macro-F1"."""
    split, _, name = result.partition("_")
    return f"{split} {SCORES[name]}" if name in SCORES else result
