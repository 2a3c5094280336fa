"""Sheets of Excel by pandas, read as a csv file would be."""

from collections.abc import Iterator
from importlib.util import find_spec

from headscope.ground.errors import DataError, first_line, warn
from headscope.ground.plain_rows import Row


def sheet_rows(path: str) -> Iterator[Row]:
    """Yield the rows of the first sheet, each cell as text; an empty line is no row.

    Raises:
        DataError: if python-calamine is missing.
        ValueError: if it cannot be read.
    """
    if find_spec("python_calamine") is None:
        raise DataError(f"{path}: needs python-calamine: pip install -e '.[excel]'")
    import pandas as pd

    try:
        sheets = pd.read_excel(path, None, dtype=str, keep_default_na=False, engine="calamine")
    except Exception as error:  # calamine has classes of its own
        raise ValueError(f"cannot be read as xlsx: {first_line(error)}") from error
    name, frame = next(iter(sheets.items()))
    if len(sheets) > 1:
        warn(f"{path}: the first of {len(sheets)} sheets is read, {name}")
    yield from frame[(frame != "").any(axis=1)].to_dict("records")
