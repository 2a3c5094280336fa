"""Rows as csv or jsonl, whole or not at all; no spreadsheet or terminal obeys any of them.

jsonl holds what was given. A csv file is opened by spreadsheets, which compute what begins like a
formula: there a ' is put in front of it, as OWASP advises (CSV Injection), but not in front of a
number such as -1.5; and control characters become U+FFFD. Some spreadsheets cut a line at each ;
and take a quotation mark after a comma for a letter, so all text stands in quotation marks, and
what follows a ;, a tab or a line end in a text is guarded as its beginning is.
"""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, to_json

from headscope.ground.errors import BIDI, DataError, first_line, listed, printable
from headscope.ground.files import replacing
from headscope.ground.plain_rows import CELLS, is_formula

if TYPE_CHECKING:
    import pandas as pd

# JSON leaves these as they are: DEL and C1, which a terminal obeys, two line ends of Unicode, and
# what changes the direction.
UNESCAPED = re.compile(f"[\x7f-\x9f\u2028\u2029]|{BIDI.pattern}")
Row = Mapping[str, Any]


def write_rows(
    path: str, rows: Iterable[Row], columns: Sequence[str], is_sheet: bool = False
) -> None:
    """Write rows to a csv or jsonl file, or as jsonl to standard output, "-".

    The first row has the columns of a csv file; `columns` are those of one without rows. One
    for a spreadsheet has a BOM: without it Excel reads UTF-8 as the text encoding of its region.

    Raises:
        DataError: for a csv file's later row with another column, or a closed standard output.
    """
    if path == "-":
        if sys.stdout is None:
            raise DataError("standard output is closed; name a file: output=...")
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)  # type: ignore[union-attr]
        for row in rows:
            sys.stdout.write(_json(row) + "\n")
        return
    is_csv = path.endswith(".csv")
    encoding = "utf-8-sig" if is_csv and is_sheet else "utf-8"
    with (
        replacing(Path(path)) as temporary,
        temporary.open("w", encoding=encoding, newline="") as file,
    ):
        if is_csv:
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerows(_csv_rows(iter(rows), columns))
        else:
            file.writelines(_json(row) + "\n" for row in rows)


def _csv_rows(rows: Iterator[Row], columns: Sequence[str]) -> Iterator[Iterable[Any]]:
    """Yield the cells of each line."""
    first = next(rows, {})
    names = list(first or columns)
    yield map(csv_cell, names)
    for row in filter(None, chain([first], rows)):
        if unknown := sorted(row.keys() - names):
            raise DataError(
                f"output: expected the same columns in every row, got {listed(unknown)} later; "
                "write a .jsonl file"
            )
        yield [csv_cell(row.get(name, "")) for name in names]


def write_frame(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table as csv, with cells as those of `write_rows`."""
    cells = frame.rename(columns=csv_cell).map(csv_cell)
    with replacing(path) as temporary:
        cells.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC)


def csv_cell(value: Any) -> Any:
    """Return a csv cell: no formula, and no control character but for tabs and line ends.

    `plain_rows.from_csv_cell` returns what it was, but for the control characters. Numbers stay as
    they are.
    """
    if isinstance(value, dict | list):
        value = _json(value)
    if not isinstance(value, str):
        return value
    text = value if value.isprintable() else "\r".join(map(printable, value.split("\r")))
    return CELLS.sub(lambda cell: f"'{cell[0]}" if is_formula(cell[0]) else cell[0], text)


def _json(value: Any) -> str:
    """Return a line of JSON as the standard has it: null where Python has NaN or an infinity."""
    try:
        text = to_json(value, inf_nan_mode="null").decode()
    except PydanticSerializationError as error:  # such as of objects in objects, 300 deep
        what = "output: a cell cannot be written as JSON"
        raise DataError(f"{what}: {first_line(error)}; drop its column") from error
    return UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
