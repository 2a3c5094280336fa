"""Sheets of Excel by pandas, read as a csv file would be."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from posixpath import join, normpath
from zipfile import ZipFile

from headscope.ground.errors import DataError, first_line, warn
from headscope.ground.plain_rows import Row, table_rows

MOST_CELLS = 20_000_000  # of a table that is mostly empty; 100 bytes each
MOSTLY_EMPTY = 0.1
TAG = re.compile(rb"<(row|c)\b([^>]*)>")
PLACE = re.compile(rb'\br="([A-Z]*)(\d+)"')
# A cell with an error such as #N/A, or with a formula that no program has computed.
WITHOUT_VALUE = re.compile(
    rb'<c\b[^>]*?\br="([A-Z]+\d+)"(?:[^>]*\bt="e"[^>]*>|'
    rb"[^>]*>\s*<f\b(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>)"
)


def sheet_rows(path: str) -> Iterator[Row]:
    """Yield the rows of the first sheet, each cell as text; an empty line is no row.

    Raises:
        DataError: if python-calamine is missing.
        ValueError: if it cannot be read, or is a huge table with hardly a cell in it.
    """
    if find_spec("python_calamine") is None:
        raise DataError(f"{path}: needs python-calamine: pip install -e '.[excel]'")
    import pandas as pd

    try:
        empty = _cells_without_value(path)
        with pd.ExcelFile(path, engine="calamine") as book:
            names = book.sheet_names
            frame = pd.read_excel(book, names[0], header=None, dtype=str, keep_default_na=False)
    except DataError:
        raise
    except Exception as error:  # calamine has classes of its own
        raise ValueError(f"cannot be read as xlsx: {first_line(error)}") from error
    if len(names) > 1:
        warn(f"{path}: the first of {len(names)} sheets is read, {names[0]}")
    if empty:
        cells = f"{len(empty)} cells, the first {empty[0]}, hold an error or a formula"
        warn(f"{path}: {cells} without a value, read as empty; open and save it in Excel")
    lines = ([*row] if any(row) else [] for row in frame.itertuples(index=False, name=None))
    yield from table_rows(lines)


def _cells_without_value(path: str) -> list[str]:
    """Return the cells of the first sheet without a value; DataError for too large a table.

    calamine makes room for every cell up to the last one, wherever that stands.
    """
    with ZipFile(path) as archive:
        sheet = archive.read(_first_sheet(archive))
    rows = columns = count = 0
    row = column = 0
    for tag in TAG.finditer(sheet):
        place = PLACE.search(tag[2])
        if tag[1] == b"row":
            row = int(place[2]) if place else row + 1
            column = 0
            continue
        column = _column(place[1]) if place else column + 1
        rows = max(rows, row)
        columns = max(columns, column)
        count += 1
    if rows * columns > max(MOST_CELLS, count / MOSTLY_EMPTY):
        size = f"{rows:,} rows of {columns:,} columns, of whose cells {count:,} are there"
        raise DataError(f"{path}: expected a table, got {size}; delete those that stand apart")
    return [found.decode() for found in WITHOUT_VALUE.findall(sheet)]


def _first_sheet(archive: ZipFile) -> str:
    """Return the name of the file with the first sheet."""
    _, sheet = archive.read("xl/workbook.xml").split(b"<sheet ", 1)
    relation = re.search(rb'\b\w+:id="([^"]+)"', sheet)
    if relation is None:
        raise ValueError("has no sheet")
    for tag in re.findall(rb"<Relationship\b[^>]*>", archive.read("xl/_rels/workbook.xml.rels")):
        if b'Id="%b"' % relation[1] in tag and (target := re.search(rb'Target="([^"]+)"', tag)):
            return normpath(join("/xl", target[1].decode())).lstrip("/")
    raise ValueError("has no first sheet")


def _column(letters: bytes) -> int:
    """Return the number of a column, from 1: 28 of AB."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number
