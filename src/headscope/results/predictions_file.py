"""Predictions in a file that another program wrote, or a spreadsheet saved, for a run's texts."""

from itertools import chain

from headscope.data.columns import class_numbers, label_name, lists_in_text, split_labels
from headscope.data.rows import read_own
from headscope.ground.errors import DataError, shown
from headscope.ground.plain_rows import Row, from_csv_cell
from headscope.ground.tables import csv_cell
from headscope.runs.run import Run


def answers_in(path: str, run: Run, texts: list[tuple[str, ...]]) -> list[list[str]]:
    """Return the column `prediction` of a file that has a row for each text."""

    def fits(rows: list[Row]) -> bool:
        answers = _predictions(rows, f"against={path}", run)
        return {*run.labels, ""}.issuperset(chain.from_iterable(answers))

    rows = read_own(path, "prediction", fits)
    if len(rows) != len(texts):
        expected = f"expected a row for each of {len(texts)} texts"
        raise DataError(f"against={path}: {expected}, got {len(rows)}")
    column = run.config.data.text_column
    for number, (row, (text, *_)) in enumerate(zip(rows, texts, strict=True)):
        given = row.get(column, text)
        cell = csv_cell(text)
        if given not in (text, cell, from_csv_cell(cell)):  # which lacks control characters
            raise DataError(f"against={path}, row {number}: has another text: {shown(given)}")
    return _predictions(rows, f"against={path}", run)


def _predictions(rows: list[Row], where: str, run: Run) -> list[list[str]]:
    """Return the classes of each row by name; others as they are written."""
    data = run.config.data
    given = [row.get("prediction") for row in rows]
    cells = ["" if cell is None else cell for cell in given]
    if data.multi_label:
        cells = [
            split_labels(cell, data.label_separator) if isinstance(cell, str) else cell
            for cell in lists_in_text(cells, where, data)
        ]
    answers = [
        [*map(label_name, cell)] if isinstance(cell, list) else [label_name(cell)] for cell in cells
    ]
    # Such as of a table that has lost our other columns: there a ' may stand before a formula.
    unguarded = {name: from_csv_cell(name) for name in {*chain.from_iterable(answers)}}
    numbers = class_numbers(run.labels, [*unguarded, *unguarded.values()])
    names = {name: run.labels[number] for name, number in numbers.items()}
    names = {name: names[bare] for name, bare in unguarded.items() if bare in names} | names
    return [[names.get(name, name) for name in answer] for answer in answers]
