"""What is printed before and after training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headscope.errors import listed
from headscope.inspection.spoken import nats
from headscope.training.report import PUT, SCORES, WITHOUT, Report
from headscope.training.scoring import MultiLabelScores, Scores
from headscope.training.widths import broken, fits, width_of

MOST_CLASSES = 12  # a wider confusion matrix does not fit on a screen; TensorBoard has it
LEAST_NAME = 10  # letters of a class's name, with its number, that are shown in a line of the matrix at the least
MOST_ROWS = 50
MOST_HEADS = 8  # that are named in a line
COUNTS = ("has, given", "has, not given", "has not, given", "neither")


def show_facts(console: Console, folder: Path, facts: dict[str, Any]) -> None:
    """Print what a reader of the results should know about the texts."""
    console.print(f"[bold]{escape(str(folder))}[/]", highlight=False, soft_wrap=True)
    for name, value in facts.items():
        console.print(f"  {name}: {_readable(value)}", highlight=False, markup=False, soft_wrap=True)


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
    _show_kept(console, report.facts_of_training)
    show_scores(console, title, {name: found for name, found in rows.items() if found})
    show_confusion(console, report.labels, report.test)
    _show_put(console, report.facts_of_training)
    _show_without(console, report.facts_of_training)
    console.print(
        "  ".join(f"{name} {value:.0f} s" for name, value in report.seconds.items()), highlight=False, soft_wrap=True
    )
    console.print(f"run folder: {escape(str(report.folder))}", highlight=False, soft_wrap=True)
    if report.most_wrong is not None:
        console.print(f"most wrong: {escape(str(report.most_wrong))}", highlight=False, soft_wrap=True)
    console.print(
        f"now look:   [bold]tensorboard --logdir {escape(report.config.outputs_dir)}[/]",
        highlight=False,
        soft_wrap=True,
    )


def _show_kept(console: Console, facts: dict[str, Any]) -> None:
    """Say which weights the scores are of."""
    if (best := facts.get("best validation macro-F1")) is not None:
        when = f"epoch {facts['kept epoch']} (step {facts['kept step']} of {facts['steps']})"
        words = f"kept: the weights of {when}, the best validation macro-F1, {best:.4f}"
        console.print(words, highlight=False, soft_wrap=True)


def _show_put(console: Console, facts: dict[str, Any]) -> None:
    """Say in one line what heads, feed-forward blocks and constant put for the predicted class, the most first."""
    if (put := facts.get(PUT)) is None:
        return
    heads = {
        f"layer {layer} head {head}": value for layer, row in enumerate(put["heads"]) for head, value in enumerate(row)
    }
    order = sorted(heads, key=lambda name: -abs(heads[name]))
    parts = [f"{name} {nats(heads[name])}" for name in order[:MOST_HEADS]]
    if others := order[MOST_HEADS:]:
        parts.append(f"the other {len(others)} heads {nats(sum(heads[name] for name in others))}")
    parts += [f"feed-forward {nats(sum(put['feedforward']))}", f"constant {nats(put['constant'])}"]
    words = f"put for the predicted class, in nats, mean over {put['texts']} validation texts: {', '.join(parts)}"
    console.print(words, highlight=False, soft_wrap=True)


def _show_without(console: Console, facts: dict[str, Any]) -> None:
    """Say for which heads the loss rises, or falls, beyond twice its error when they alone are switched off."""
    if (found := facts.get(WITHOUT)) is None:
        return
    heads = found["heads"]
    order = sorted(heads, key=lambda name: -abs(heads[name][0]))
    matter = [name for name in order if abs(heads[name][0]) > 2 * heads[name][1]]
    parts = [f"without {name} {nats(heads[name][0])} ± {heads[name][1]:.2f}" for name in matter[:MOST_HEADS]]
    idle = [name for name in order if name not in matter]
    words = f"{len(matter)} of {len(heads)} heads matter by themselves, change of the loss of {found['texts']} texts"
    console.print(f"{words}: {', '.join(parts) or 'none'}", highlight=False, soft_wrap=True)
    if idle:
        console.print(f"not shown to matter: {listed(idle)}", highlight=False, soft_wrap=True)


def show_scores(console: Console, title: str, rows: dict[str, Scores]) -> None:
    """Print a table with a row for each model; long names and headings go on in a second line if they must."""
    known = [name for name in SCORES if all(hasattr(found, name) for found in rows.values())]
    cells = [[f"{getattr(found, score):.4f}" for score in known] for found in rows.values()]
    headings, names = [SCORES[score] for score in known], list(rows)
    table = _scores_table(headings, names, cells)
    if not fits(table, console):
        headings = [heading.replace(" ", "\n") for heading in headings]
        room = console.width - width_of(_scores_table(headings, [""] * len(names), cells), console)
        table = _scores_table(headings, [broken(name, room) for name in names], cells)
    _title(console, title)
    console.print(table)


def _scores_table(headings: list[str], names: list[str], cells: list[list[str]]) -> Table:
    table = Table()
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in zip(names, cells, strict=True):
        table.add_row(escape(name), *row)
    return table


def show_confusion(console: Console, labels: list[str], found: Scores) -> None:
    """Print the confusion matrix, or a row of counts for each class where a text has several, if it fits a screen."""
    if isinstance(found, MultiLabelScores):
        rows = [[both, missed, alone, neither] for (neither, alone), (missed, both) in found.confusion]
        _title(console, "texts that have the class, and are given it")
        console.print(_counts_table(COUNTS, labels[:MOST_ROWS], rows[:MOST_ROWS]))
    elif len(labels) <= MOST_CLASSES:
        _show_matrix(console, labels, found.confusion)


def _show_matrix(console: Console, labels: list[str], counts: list[list[int]]) -> None:
    """Print the confusion matrix; with numbers for the classes above it where their names have no room."""
    title, table = "rows: label, columns: prediction", _counts_table(labels, labels, counts)
    if not fits(table, console):
        numbers = [str(number) for number in range(1, len(labels) + 1)]
        names = [f"{number}: {label}" for number, label in zip(numbers, labels, strict=True)]
        if not fits(_counts_table(numbers, [name[:LEAST_NAME] for name in names], counts, room=0), console):
            _title(console, f"no room for the confusion matrix in {console.width} columns; a wider window has it")
            return
        title, table = f"{title}, by their numbers", _counts_table(numbers, names, counts, room=0)
    _title(console, title)
    console.print(table)


def _title(console: Console, title: str) -> None:
    """Print a table's title as a line of its own, which a narrow table does not break."""
    console.print(title, style="table.title", highlight=False, markup=False, soft_wrap=True)


def _counts_table(headings: Sequence[str], labels: list[str], rows: list[list[int]], room: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, room, 0, 0))
    table.add_column("", overflow="fold")  # cut names may look alike
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for label, counts in zip(labels, rows, strict=True):
        table.add_row(escape(label), *map(str, counts))
    return table
