"""One file of rows, read from beginning to end: lines, csv, tsv, jsonl, json, parquet.

Python's csv module reads tables. That of pyarrow joins a row whose quotation mark is not closed
with the next one, without a word; `datasets` reads by pandas, which takes the first cell of a row
with too many cells as its index.
"""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.ground.errors import DataError, listed, shown
from headscope.settings.config import EMBEDDED, DataConfig, expanded

Row = dict[str, Any]
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "lines",
}
PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
UNREADABLE = (
    csv.Error,
    EOFError,
    OSError,
    RecursionError,
    ValueError,
    lzma.LZMAError,
    zlib.error,
)


def format_of(path: Path) -> str:
    """Return the format of a file by the ending of its name; a DataError for another ending."""
    name = path.with_suffix("") if path.suffix in PACKED else path
    if name.suffix.lower() not in FORMATS:
        packed = ", ".join(PACKED)
        raise DataError(
            f"{path}: expected a name that ends in {', '.join(FORMATS)}, perhaps with one of "
            f"{packed} behind it"
        )
    return FORMATS[name.suffix.lower()]


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
            objects), parquet, or auto: by the ending of the file's name; without one lines.
        text_column: the name of the column that lines make.
        encoding: text encoding; utf-8 is also UTF-16 with a BOM.
        separator: column delimiter; None: a comma, or a tab in tsv.
        keys: prefix of `encoding` and `separator` on the command line.

    Raises:
        DataError: for what cannot be read; it names the file and the row, counted from 0.
    """
    if form == "auto":
        form = format_of(Path(path)) if Path(path).suffix else "lines"
    number = 0
    try:
        for row in _rows(path, form, text_column, encoding, separator, keys):
            yield row
            number += 1
    except UNREADABLE as error:
        remedy = ""
        place = f"row {number}"
        if isinstance(error, UnicodeDecodeError):
            place = f"after {number} rows"  # the file is decoded in blocks
            others = [name for name in ("cp1252", "shift_jis", "utf-8") if name != encoding]
            remedy = f"; set the text encoding: {keys}encoding={' or '.join(others)}"
        elif isinstance(error, csv.Error):
            remedy = '; a text with a " in it is written "so ""quoted"" it is"'
        name = "standard input" if path == "-" else path
        raise DataError(f"{name}, {place}: {error}{remedy}") from error


def _rows(
    path: str, form: str, text_column: str, encoding: str, separator: str | None, keys: str
) -> Iterator[Row]:
    if form == "parquet":
        from pyarrow.parquet import ParquetFile  # heavy

        for batch in ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
        return
    with open_text(path, encoding) as file:
        if form == "lines":
            for line in file:
                yield {text_column: line.rstrip("\r\n")}
        elif form in ("csv", "tsv"):
            yield from csv_rows(file, separator or {"csv": ",", "tsv": "\t"}[form], keys)
        else:
            yield from json_rows(file, is_lines=form == "jsonl")


@contextmanager
def open_text(path: str, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for "-", as text: line ends as they are, without a BOM."""
    raw: Any
    if path == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file: input=...")
        raw = io.BufferedReader(sys.stdin.buffer)
    else:
        unpack: Any = PACKED.get(Path(path).suffix, open)
        raw = unpack(path, "rb")
    with raw:
        if codecs.lookup(encoding).name == "utf-8":
            is_wide = raw.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if is_wide else "utf-8-sig"
        yield io.TextIOWrapper(raw, encoding, newline="")


def csv_rows(file: Iterable[str], separator: str, keys: str) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file; ValueError for one with text beyond its columns.

    A column without a name, such as a spreadsheet adds behind the others, is called by its number.
    """
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the default of 131,072 characters
    delimiter = separator.replace("\\t", "\t")
    rows = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
    header = enumerate(next(rows, []), start=1)
    names = [name or f"column_{number}" for number, name in header]
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name, of {shown(names)}; rename one")
    for cells in rows:
        if any(cells[len(names) :]):
            raise ValueError(
                f"has more cells than the first line, which has {len(names)}; put quotes around a "
                f"text with a {delimiter!r} in it{separator_hint(names, keys)}"
            )
        cells += [""] * (len(names) - len(cells))
        yield dict(zip(names, cells, strict=False))


def json_rows(file: io.TextIOWrapper, is_lines: bool) -> Iterator[Row]:
    """Yield the objects of a file, which has one a line, or a list of them.

    U+FFFD replaces half a surrogate pair, which no encoding has.
    """
    lines: Iterable[str] = file
    if not is_lines:
        text = file.read()
        lines = [text] if text.lstrip().startswith("[") else text.split("\n")
    for line in filter(str.strip, lines):
        value = json.loads(line)
        if "\\ud" in line.lower():
            value = json.loads(HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                got = shown(json.dumps(row))
                raise ValueError(f'expected an object such as {{"text": "..."}}, got {got}')
            yield row


def as_text(value: object) -> str | None:
    """Return the text that a value of a column of texts stands for; None if it is no text.

    A missing one (None, NaN, pandas' NA) is an empty text; U+FFFD replaces half a surrogate pair.
    """
    if isinstance(value, str):
        return HALF.sub("\ufffd", value)
    is_missing = value is None or type(value).__name__ == "NAType"
    return "" if is_missing or (isinstance(value, float) and value != value) else None


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


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: whitespace, zero-width and control characters alone."""
    return all(unicodedata.category(sign) in ("Cc", "Cf", "Zs", "Zl", "Zp") for sign in text)


def check_first_row(config: DataConfig) -> None:
    """Raise a DataError if a table lacks a column; at once, before anything heavy is imported."""
    path = expanded(config.path)
    if config.path != EMBEDDED and path.is_file() and format_of(path) in ("csv", "tsv"):
        rows = read_rows(str(path), encoding=config.encoding, separator=config.separator)
        if row := next(rows, None):
            check_names(row, config, config.path)


def check_names(names: Iterable[str], config: DataConfig, where: str) -> None:
    """Raise a DataError if a column of the settings is missing among the names of the columns."""
    for key in ("text_column", "text_pair_column", "label_column"):
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
