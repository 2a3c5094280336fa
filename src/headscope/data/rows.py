"""One file of rows, read from beginning to end: lines, csv, tsv, jsonl, json.

Python's own modules read it. `datasets` would read it by pandas, which takes the first cell of a
row with too many cells as its index, so that `good, film,1` becomes the text " film"; and by
pyarrow, which takes a label such as "2024-01-02" as a time.
"""

import codecs
import csv
import gzip
import io
import json
import re
import select
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.config import EMBEDDED, DataConfig, expanded, is_local
from headscope.errors import DataError, listed, separator_hint, shown
from headscope.validation import message

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
TABLES = ("csv", "tsv", "json", "jsonl", "parquet")
MOST_JSON = 2**24  # bytes of a list in one file, of which the first row is no quicker than all
PATIENCE = 0.01  # seconds that a pipe may take to fill again before it counts as slow


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, before .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read_rows(
    path: str,
    form: str = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    separator: str | None = None,
    keys: str = "data.",
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[Row]:
    """Yield each row of a file, which may end in .gz, or of standard input ("-").

    Args:
        path: of the file.
        form: lines (each is a text), text (the whole file is one), csv, tsv, jsonl, json (a list of
            objects, or as jsonl), or auto: by the ending of the file's name, else lines.
        text_column: the name of the column that lines and texts make.
        encoding: text encoding; utf-8 is also UTF-16 with a BOM.
        separator: column delimiter; None: a comma, or a tab in tsv.
        keys: prefix of `encoding` and `separator` on the command line.
        before_waiting: called before standard input is waited for.

    Raises:
        DataError: for what cannot be read; it names the file and the row, counted from 0.
    """
    if form == "auto":
        form = FORMATS.get(ending_of(Path(path)), "lines")
    name = "standard input" if path == "-" else path
    number = 0
    try:
        with open_text(path, encoding, before_waiting) as file:
            if form == "lines":
                rows: Iterator[Row] = ({text_column: line.rstrip("\r\n")} for line in file)
            elif form == "text":
                rows = iter([{text_column: re.sub("\r\n?", "\n", file.read())}])
            elif form in ("csv", "tsv"):
                rows = csv_rows(file, separator or {"csv": ",", "tsv": "\t"}[form], keys)
            else:
                rows = json_rows(file)
            for row in rows:
                yield row
                number += 1
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, after {number} rows: {error}; set the text encoding, such as "
            f"{keys}encoding=cp1252 or {keys}encoding=shift_jis"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be unpacked: {error}") from error
    except (csv.Error, ValueError, RecursionError) as error:
        raise DataError(f"{name}, row {number}: {error}") from error


def visible(path: Path, pattern: str) -> list[Path]:
    """Return the files that match, sorted, but for those hidden or in a hidden folder."""
    return sorted(
        file
        for file in path.glob(pattern)
        if file.is_file() and not re.search(r"(^|/)[._]", file.relative_to(path).as_posix())
    )


def missing_columns(config: DataConfig) -> Iterator[str]:
    """Yield a message for each column of the settings that the files' first rows do not have.

    It reads no more, and is asked before anything heavy is imported. What has no columns of its
    own, such as a Hub id or text files, has no message.
    """
    if config.path == EMBEDDED or not is_local(config.path):
        return
    for path in filter(None, (config.path, config.validation_path, config.test_path)):
        names = columns_of(expanded(path), config)
        for key in ("text_column", "text_pair_column", "label_column") if names else ():
            column = getattr(config, key)
            if column is not None and column not in names:
                hint = separator_hint(names).removeprefix("; ")
                expected = f"one of the columns {listed(names)} of {path}"
                yield message(f"data.{key}", expected, column, *filter(None, [hint]))


def columns_of(path: Path, config: DataConfig) -> list[str]:
    """Return the columns of a file or of all tables in a folder; none where they are unknown."""
    tables = [path] if path.is_file() else visible(path, "**/*")
    tables = [table for table in tables if FORMATS.get(ending_of(table)) in TABLES]
    if path.is_dir() and visible(path, "train/*/*.txt"):  # a folder of text files for each class
        return []
    names: dict[str, None] = {}
    for table in tables:
        try:
            columns = _first_columns(table, config)
        except Exception:  # whoever reads the whole file says what is wrong with it
            columns = None
        if columns is None or (path.is_dir() and len(columns) == 1):  # its card has a separator
            return []
        names |= dict.fromkeys(columns)
    return list(names)


def _first_columns(path: Path, config: DataConfig) -> list[str] | None:
    form = FORMATS[ending_of(path)]
    if form == "parquet":
        from pyarrow.parquet import read_schema  # heavy

        return list(read_schema(path).names)
    if form in ("json", "jsonl"):  # the first row may lack what others have
        is_large = form == "json" and path.stat().st_size > MOST_JSON
        if config.drop_empty or is_large:
            return None
    rows = read_rows(str(path), encoding=config.encoding, separator=config.separator)
    row = next(rows, None)
    return None if row is None else list(row)


@contextmanager
def open_text(
    path: str, encoding: str, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for "-", as text: line ends as they are, without a BOM."""
    raw: Any
    if path == "-":
        raw = io.BufferedReader(StandardInput(before_waiting))
    else:
        raw = (gzip.open if path.endswith(".gz") else open)(path, "rb")
    with raw:
        if codecs.lookup(encoding).name == "utf-8":
            is_wide = raw.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if is_wide else "utf-8-sig"
        yield io.TextIOWrapper(raw, encoding, newline="")


class StandardInput(io.RawIOBase):
    """Standard input, which tells when it is about to wait for more."""

    def __init__(self, before_waiting: Callable[[], object]) -> None:
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file: input=...")
        self.before_waiting = before_waiting

    def readable(self) -> bool:
        """Tell BufferedReader that it may read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come; wait only where nothing has."""
        source: Any = sys.stdin.buffer
        try:
            is_ready = bool(select.select([source], [], [], PATIENCE)[0])
        except OSError:  # Windows can ask sockets alone
            is_ready = False
        if not is_ready:
            self.before_waiting()
        content = source.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def csv_rows(file: Iterable[str], separator: str, keys: str) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file; ValueError for one with more cells than columns."""
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the default of 131,072 characters
    delimiter = separator.replace("\\t", "\t")
    reader = csv.DictReader(file, delimiter=delimiter, strict=True, restval="")
    names = [name for name in reader.fieldnames or [] if name]
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name, of {shown(names)}; rename one")
    for row in reader:
        if any(row.pop(None, ())):
            raise ValueError(
                f"has more cells than the first line, which has {len(names)}; put quotes around a "
                f"text with a {delimiter!r} in it{separator_hint(names, keys)}"
            )
        yield row


def json_rows(file: Iterable[str]) -> Iterator[Row]:
    """Yield the objects of a file, one a line or all in one list."""
    for line in file:
        if not line.strip():
            continue
        text = "".join([line, *file]) if line.lstrip().startswith("[") else line
        content = json.loads(text)
        if "\\u" in text:  # half a surrogate pair is JSON, and cannot be encoded
            json.dumps(content, ensure_ascii=False).encode()
        for row in content if isinstance(content, list) else [content]:
            if not isinstance(row, dict):
                raise ValueError(
                    f'expected an object such as {{"text": "..."}}, got {shown(json.dumps(row))}'
                )
            yield row


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
