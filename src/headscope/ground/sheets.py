"""Sheets of Excel by pandas: read as a csv file would be, written with every text as a text."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.ground.errors import DataError, first_line, printable, warn
from headscope.ground.plain_rows import Row

if TYPE_CHECKING:
    import pandas as pd

TEXT_ALONE = {"strings_to_formulas": False, "strings_to_urls": False}


def check_installed(path: str) -> None:
    """Raise a DataError if the packages that read and write sheets are missing."""
    if find_spec("python_calamine") is None or find_spec("xlsxwriter") is None:
        raise DataError(f"{path}: needs python-calamine and xlsxwriter: pip install -e '.[excel]'")


def sheet_rows(path: str) -> Iterator[Row]:
    """Yield the rows of the first sheet, each cell as text; an empty line is no row.

    Raises:
        ValueError: if it cannot be read.
    """
    check_installed(path)
    import pandas as pd

    try:
        sheets = pd.read_excel(path, None, dtype=str, keep_default_na=False, engine="calamine")
    except Exception as error:  # calamine has classes of its own
        raise ValueError(f"cannot be read as xlsx: {first_line(error)}") from error
    name, frame = next(iter(sheets.items()))
    if len(sheets) > 1:
        warn(f"{path}: the first of {len(sheets)} sheets is read, {name}")
    yield from frame[(frame != "").any(axis=1)].to_dict("records")


def write_sheet(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table: numbers as numbers, all else as text, with no formula or link."""
    import pandas as pd

    texts = frame.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
    with pd.ExcelWriter(path, "xlsxwriter", engine_kwargs={"options": TEXT_ALONE}) as writer:
        texts.to_excel(writer, index=False)
