"""Sheets of Excel: read as a csv file would be, written with every text as a text.

A cell of text holds what it shows: no formula, link or number is made of it.
"""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headscope.ground.errors import DataError, first_line, printable, warn
from headscope.ground.plain_rows import Row, named_rows

MOST_IN_CELL = 32_767  # characters, of Excel
MISSING = "python-calamine and xlsxwriter, which are not installed: pip install -e '.[excel]'"


def check_installed(path: str | Path) -> None:
    """Raise a DataError if the packages that read and write sheets are missing."""
    if find_spec("python_calamine") is None or find_spec("xlsxwriter") is None:
        raise DataError(f"{path}: needs {MISSING}")


def sheet_rows(path: str) -> Iterator[Row]:
    """Yield the rows of the first sheet, each cell as text; ValueError for what cannot be read."""
    check_installed(path)
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with CalamineWorkbook.from_path(path) as book:
            if len(book.sheet_names) > 1:
                name = book.sheet_names[0]
                warn(f"{path}: the first of {len(book.sheet_names)} sheets is read, {name}")
            sheet = book.get_sheet_by_index(0)
            rows = ([*map(_cell_text, row)] for row in sheet.iter_rows())
            yield from named_rows(row if any(row) else [] for row in rows)
    except CalamineError as error:
        raise ValueError(f"cannot be read as xlsx: {first_line(error)}") from error


def _cell_text(value: Any) -> str:
    """Return a cell as text: 3 for 3.0, true for TRUE, dates as ISO 8601 has them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def write_sheet(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of cells, some in memory at a time: numbers as numbers, all else as text.

    Raises:
        DataError: for a longer text than a cell of Excel holds, or more rows than a sheet.
    """
    check_installed(path)
    from xlsxwriter import Workbook

    with Workbook(path, {"constant_memory": True}) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            for column, cell in enumerate(row):
                write = sheet.write_string
                if isinstance(cell, int | float) and cell == cell:  # NaN is an empty cell
                    write = sheet.write_number
                else:
                    cell = "" if cell is None or cell != cell else printable(str(cell))
                if len(str(cell)) > MOST_IN_CELL or write(number, column, cell):
                    raise DataError(
                        f"output, row {number}: a sheet has cells of {MOST_IN_CELL:,} characters "
                        "and 1,048,576 rows; write a .csv or .jsonl file"
                    )
