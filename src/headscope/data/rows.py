"""One file of rows, read from beginning to end: lines, csv, tsv, jsonl, json, parquet, xlsx."""

import csv
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from headscope.ground import plain_rows
from headscope.ground.errors import DataError, listed
from headscope.ground.plain_rows import (
    FORMATS,
    MOST_COLUMNS,
    MOST_IN_ROW,
    MOST_PACKED,
    MOST_UNPACKED,
    UNREADABLE,
    Row,
    rows_of,
)
from headscope.ground.sheets import sheet_rows
from headscope.settings.config import COLUMN_KEYS, EMBEDDED, DataConfig

READABLE = {**FORMATS, ".parquet": "parquet", ".xlsx": "xlsx"}
ENCODINGS = ("cp932", "cp1252", "utf-8")  # of Excel in Japan, in Europe and America, of all else

BYTES = re.compile("binary")  # types of pyarrow: neither csv nor JSON has such values
ROWS_AT_A_TIME = 1_024  # of a parquet file
MOST_OWN = 2**20  # rows of a file of ours, as many as a spreadsheet has

# A list or an object as pandas, numpy or Label Studio write it into a cell.
COLLECTION = re.compile(r"""\s*(\[(\s*["'].*|[\d\s.,-]*)\]|\{\s*["'].*\})\s*""", re.DOTALL)


def format_of(path: Path) -> str:
    """Return the format of a file by the ending of its name; a DataError for another ending."""
    try:
        return plain_rows.format_of(path, READABLE)
    except ValueError as error:
        raise DataError(str(error)) from None


def read_rows(
    path: str,
    form: str = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    separator: str | None = None,
    keys: str = "data.",
) -> Iterator[Row]:
    """Yield each row of a file, which may end in .gz, .bz2 or .xz, or of standard input ("-").

    Args:
        path: of the file.
        form: lines (each is a text), csv, tsv, jsonl (an object a line), json (also a list of
            objects), parquet, xlsx, or auto: by the ending of the file's name; without one lines.
        text_column: the name of the column that lines make.
        encoding: text encoding; utf-8 is also UTF-16 with a BOM.
        separator: column delimiter; None: a comma, or a tab in tsv.
        keys: prefix of `encoding` and `separator` on the command line.

    Raises:
        DataError: for what cannot be read; it names the file and the row, counted from 0.
    """
    if path == "-" and sys.stdin is None:
        raise DataError("standard input is closed; name a file: input=...")
    if form == "auto":
        form = format_of(Path(path)) if Path(path).suffix else "lines"
    number = 0
    try:
        hint = partial(separator_hint, keys=keys)
        if form == "parquet":
            rows = _parquet_rows(path)
        elif form == "xlsx":
            rows = sheet_rows(path)
        else:
            rows = rows_of(path, form, text_column, encoding, separator, hint)
        for row in rows:
            yield row
            number += 1
    except UNREADABLE as error:
        remedy = ""
        place = f"row {number}"
        if isinstance(error, UnicodeDecodeError):
            place = f"after {number} rows"  # the file is decoded in blocks
            others = [name for name in ENCODINGS if name != encoding]
            remedy = f"; set the text encoding: {keys}encoding={' or '.join(others)}"
        elif isinstance(error, csv.Error):
            remedy = '; a text with a " in it is written "so ""quoted"" it is"'
        name = "standard input" if path == "-" else path
        raise DataError(f"{name}, {place}: {error}{remedy}") from error


def parquet_batches(path: str) -> Iterator[Any]:
    """Yield the batches of a parquet file; ValueError where it holds much more than its size.

    Texts, also in lists, stay in dictionaries, where a file of one long text a million times has
    them.
    """
    import pyarrow.compute as pc  # heavy
    from pyarrow.parquet import ParquetFile
    from pyarrow.types import is_dictionary

    most = max(MOST_UNPACKED, MOST_PACKED * Path(path).stat().st_size)
    with ParquetFile(path) as file:
        found = file.metadata
    if found.num_columns > MOST_COLUMNS:
        raise ValueError(f"expected at most {MOST_COLUMNS:,} columns, got {found.num_columns:,}")
    leaves = [found.schema.column(each) for each in range(found.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    held = 0
    for group in map(found.row_group, range(found.num_row_groups)):
        values = [group.column(each).num_values for each in range(found.num_columns)]
        held += max(group.total_byte_size, 16 * max(values, default=0))
    batches = ParquetFile(path, read_dictionary=texts).iter_batches(ROWS_AT_A_TIME)
    while held <= most:
        if (batch := next(batches, None)) is None:
            return
        for values in chain.from_iterable(map(_leaves, batch.columns)):
            if len(values) > MOST_IN_ROW:
                rows = f"{len(batch):,} rows of lists"
                raise ValueError(f"expected at most {MOST_IN_ROW:,} values in {rows}")
            if not is_dictionary(values.type):
                continue
            lengths = pc.binary_length(values.dictionary)
            if (pc.max(lengths).as_py() or 0) > 4 * MOST_IN_ROW:  # bytes
                raise ValueError(f"expected at most {MOST_IN_ROW:,} characters in a cell")
            held += pc.sum(lengths.take(values.indices)).as_py() or 0
        if held <= most:
            yield batch
    raise ValueError("holds far more than its size; write it as csv, if that is right")


def _leaves(column: Any) -> Iterator[Any]:
    """Yield the values of a column of a batch, those in lists and objects too."""
    from pyarrow.types import is_map, is_nested

    if not is_nested(column.type):
        yield column
    elif is_map(column.type):
        yield from (*_leaves(column.keys), *_leaves(column.items))
    else:
        members = column.flatten()  # of an object its columns, of a list all of its values
        for member in members if isinstance(members, list) else [members]:
            yield from _leaves(member)


def _parquet_rows(path: str) -> Iterator[Row]:
    from pyarrow.parquet import read_schema  # heavy

    exact = []  # columns of nanoseconds, which Python's own datetime does not have
    for field in read_schema(path):
        if "[ns" in str(field.type):
            exact.append(field.name)
        if BYTES.search(str(field.type)):
            expected = "expected text or numbers, as csv and JSON have"
            raise ValueError(f"column {field.name!r}: {expected}, got {field.type}; drop it")
    for batch in parquet_batches(path):
        for start in range(0, len(batch), 16):
            for row in batch.slice(start, 16).to_pylist():
                times = {name: row[name] and str(row[name]) for name in exact}
                yield row | times


def read_own(path: str, column: str, fits: Callable[[list[Row]], bool]) -> list[Row]:
    """Return the rows of a file that headscope wrote and a spreadsheet may have saved since.

    That may have changed the encoding, and put semicolons or tabs in place of commas. Of the ways
    to read it the first counts that has `column` and fits; else the first that has it.

    Raises:
        DataError: if there is none.
    """
    readable: list[list[Row]] = []
    problem = None
    for encoding, separator in product(("utf-8", "cp932", "cp1252"), (None, ";", "\\t")):
        try:
            found = read_rows(path, encoding=encoding, separator=separator, keys="")
            rows = [*islice(found, MOST_OWN + 1)]
        except DataError as error:
            problem = problem or error
            continue
        if len(rows) > MOST_OWN:
            raise DataError(f"{path}: expected at most {MOST_OWN:,} rows, got more; split it")
        if rows and column not in rows[0]:
            has = listed([*rows[0]])
            problem = problem or DataError(f"{path}: expected a column {column!r}, got {has}")
        elif fits(rows):
            return rows
        elif not readable:
            readable.append(rows)
    if not readable:
        assert problem is not None
        raise problem
    return readable[0]


def as_list(column: Any, key: str) -> list[Any]:
    """Return the values of a list, or of a column of pandas, numpy, torch, datasets or pyarrow.

    Raises:
        ValueError: for one text or a whole table, which could be read letter by letter or by the
            names of its columns; `key` names the argument.
    """
    if isinstance(column, str):
        raise ValueError(f"{key}: expected a list of {key}, got one text; write [text]")
    if isinstance(column, Mapping) or hasattr(column, "columns") or hasattr(column, "column_names"):
        kind = type(column).__name__
        raise ValueError(f"{key}: expected a list or one column, got a {kind}; name its column")
    to_list = getattr(column, "tolist", None) or getattr(column, "to_pylist", None)
    return list(column) if to_list is None else to_list()


def joined_labels(labels: list[str], classes: Iterable[str], separator: str) -> str | list[str]:
    """Return labels as a csv cell that `labels_of` reads: joined, or a list if that is no way back.

    That is so where the name of any class has the separator in it, or looks like a list.
    """
    if any(separator in name or COLLECTION.fullmatch(name) for name in classes):
        return labels
    return separator.join(labels)


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: whitespace, zero-width and control characters alone."""
    return all(unicodedata.category(sign) in ("Cc", "Cf", "Zs", "Zl", "Zp") for sign in text)


def check_first_row(config: DataConfig) -> None:
    """Raise a DataError if a table lacks a column; at once, before anything heavy is imported."""
    path = Path(config.path)
    if config.path != EMBEDDED and path.is_file() and format_of(path) in ("csv", "tsv"):
        rows = read_rows(str(path), encoding=config.encoding, separator=config.separator)
        if row := next(rows, None):
            check_names(row, config, config.path)


def check_names(names: Iterable[str], config: DataConfig, where: str) -> None:
    """Raise a DataError if a column of the settings is missing among the names of the columns."""
    for key in COLUMN_KEYS:
        column = getattr(config, key)
        if column is not None and column not in names:
            raise DataError(f"{where}: {no_column(column, key, list(names))}")


def no_column(column: str, key: str, names: Sequence[str], keys: str = "data.") -> str:
    """Return the message for a column that a file does not have."""
    quoted = [name if name == name.strip() else repr(name) for name in names]
    return (
        f"no column {column!r} for {keys}{key}; it has {listed(quoted)} (a table's first line "
        f"holds the names){separator_hint(names, keys)}"
    )


def separator_hint(columns: Sequence[str], keys: str = "data.") -> str:
    """Return what to do about a csv file whose header has semicolons or tabs and no comma."""
    mark = re.search("[;\t]", columns[0]) if len(columns) == 1 else None
    if mark is None:
        return ""
    written = mark[0].replace("\t", "\\t")
    return f'; its first line has no comma: set "{keys}separator={written}"'
