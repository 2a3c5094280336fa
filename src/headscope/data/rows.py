"""Files of rows, read one after the other: lines, csv, tsv, jsonl, json. Training and predicting read them alike.

They are parsed by Python's own modules: what untrusted content can do to them is raise an error, never end the process.
"""

import codecs
import csv
import gzip
import io
import json
import os
import re
import select
import stat
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.errors import DataError, separator_hint, shown

Row = dict[str, Any]
FORMS = {".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
COMPRESSED = ".gz"
UTF8 = "utf-8"
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
LINE_END = re.compile("\r\n|\r|\n")
PATIENCE = 0.01  # seconds that a pipe may take to fill again before it counts as slow
HALF = re.compile(
    r"\\u[dD][89a-fA-F]"
)  # how JSON writes half of a character; of all forms it alone can


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: spaces of any width, even of none, and control characters alone."""
    return all(unicodedata.category(sign) in ("Cc", "Cf", "Zs", "Zl", "Zp") for sign in text)


def format_of(path: Path) -> str:
    """Return the form of a file by the ending of its name, before .gz: csv, tsv, jsonl, json, else lines."""
    ending = Path(path.stem).suffix if path.suffix.lower() == COMPRESSED else path.suffix
    return FORMS.get(ending.lower(), "lines")


def check_is_file(path: Path) -> None:
    """Raise a DataError if there is no file that ends: a reader of a pipe or a socket would wait for ever."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        raise DataError(f"{path}: is {kinds.get(stat.S_IFMT(mode), 'a device')}, takes a file")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: cannot be read: permission denied")


class _Arriving(io.RawIOBase):
    """Standard input, which tells when it is about to wait. Whole lines are handed on before more is read."""

    def __init__(self, before_waiting: Callable[[], object]) -> None:
        self.source: Any = sys.stdin.buffer
        self.before_waiting = before_waiting

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._has_more():
            self.before_waiting()
        some = self.source.read1(len(buffer))
        buffer[: len(some)] = some
        return len(some)

    def _has_more(self) -> bool:
        try:
            return bool(select.select([self.source], [], [], PATIENCE)[0])
        except OSError:  # Windows can ask sockets alone
            return False


@contextmanager
def opened(
    path: str | Path, encoding: str = UTF8, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for "-", as text whose line ends stay as they are.

    A byte order mark is left out; it says also what a file is that was expected to be UTF-8.

    Raises:
        DataError: if it cannot be opened, or for a byte that the encoding does not have; it names its line.
    """
    is_input = str(path) == "-"
    if not is_input:
        check_is_file(Path(path))
    elif sys.stdin is None:
        raise DataError("standard input is closed; name a file: input=...")
    unpacked: Any = gzip.open if Path(path).suffix.lower() == COMPRESSED else open
    with _Arriving(before_waiting) if is_input else unpacked(path, "rb") as raw:
        try:
            source = io.BufferedReader(raw)
            start = source.peek(4)
            if codecs.lookup(encoding).name == UTF8:
                encoding = next(
                    (name for mark, name in MARKS.items() if start.startswith(mark)), UTF8
                )
            yield io.TextIOWrapper(source, encoding=encoding, newline="")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: cannot be unpacked: {error}") from error


def numbered(
    file: io.TextIOWrapper, path: str | Path, encoding_key: str = "data.encoding"
) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, counted from 1 as an editor does."""
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            yield number, line
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):  # such as UTF-16 without its mark
            raise DataError(f"{path}: cannot be read as {file.encoding}: {error}") from error
        before = error.object[: error.start].decode(file.encoding, "replace")
        line_number = number + 1 + len(LINE_END.findall(before))
        name = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8"}.get(file.encoding, file.encoding)
        raise DataError(
            f"{path}, line {line_number}: byte 0x{error.object[error.start]:02x} is not {name}; name the encoding, "
            f"such as {encoding_key}=cp1252 or {encoding_key}=shift_jis"
        ) from error


def read_rows(
    path: str,
    form: str = "auto",
    text_column: str = "text",
    encoding: str = UTF8,
    separator: str | None = None,
    keys: str = "data.",
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, Row]]:
    """Yield each row of a file or of standard input, and before it its place there, such as "line 3".

    Args:
        path: a file, or "-" for standard input.
        form: lines (each is a text), csv, tsv, jsonl, json (a list of objects, or as jsonl), or auto: by the ending of
            the file's name, else lines.
        text_column: the name under which a line is handed on.
        encoding: what the file's bytes mean.
        separator: what stands between two cells; None: a comma, or a tab in tsv.
        keys: what stands before `encoding` and `separator` on the command line.
        before_waiting: called when all that has come on standard input was handed on, and more may take a while.

    Raises:
        DataError: for what cannot be read; it names the file and the line.
    """
    form = format_of(Path(path)) if form == "auto" else form
    name = "standard input" if path == "-" else path
    with opened(path, encoding, before_waiting) as file:
        lines = numbered(file, name, f"{keys}encoding")
        if form == "lines":
            yield from (
                (f"line {number}", {text_column: line.rstrip("\r\n")}) for number, line in lines
            )
        elif form in ("csv", "tsv"):
            delimiter = separator or ("\t" if form == "tsv" else ",")
            yield from _table_rows(
                (line for _, line in lines), delimiter.replace("\\t", "\t"), name, keys
            )
        else:
            yield from _json_rows(lines, name, takes_list=form == "json")


def _table_rows(
    lines: Iterable[str], delimiter: str, name: str, keys: str
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a csv or tsv file, without the empty cells at the end that spreadsheets leave.

    A row with more cells than columns is refused: a text with a comma and no quotes would be cut at it.
    """
    csv.field_size_limit(
        sys.maxsize
    )  # a text may be longer than the 131,072 characters that csv allows by default
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] = []
    line = 1  # where the row begins; the reader counts where it ends
    try:
        for cells in reader:
            if not names:
                names = _column_names(cells, name, line)
            elif cells:
                if any(cells[len(names) :]):
                    mark = {"\t": "tab", ",": "comma"}.get(delimiter, repr(delimiter))
                    raise DataError(
                        f"{name}, line {line}: has {len(cells)} cells, the first line has {len(names)}; put quotes "
                        f"around a text with a {mark} in it{separator_hint(names, keys)}"
                    )
                cells += [""] * (len(names) - len(cells))
                yield f"line {line}", dict(zip(names, cells, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        open_quote = (
            "a quote that begins there is not closed" if "unexpected end" in str(error) else error
        )
        raise DataError(f"{name}, line {line}: is not csv: {open_quote}") from error


def _column_names(cells: list[str], name: str, line: int) -> list[str]:
    names = list(cells)
    while names and not names[-1]:
        names.pop()
    twice, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise DataError(
            f"{name}, line {line}: {count} columns have the name '{shown(twice)}'; rename them"
        )
    return names


def _json_rows(
    lines: Iterator[tuple[int, str]], name: str, takes_list: bool
) -> Iterator[tuple[str, Row]]:
    for number, line in lines:
        if not line.strip():
            continue
        if takes_list and line.lstrip().startswith("["):
            text = line + "".join(line for _, line in lines)
            rows = _parsed(text, name, number)
            yield from (
                (place, _checked_row(row, f"{name}, {place}")) for place, row in _places(rows)
            )
        else:
            yield (
                f"line {number}",
                _checked_row(_parsed(line.rstrip(), name, number), f"{name}, line {number}"),
            )


def _places(rows: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"row {number}", row) for number, row in enumerate(rows))


def _parsed(text: str, name: str, line: int) -> Any:
    try:
        if HALF.search(text):
            json.dumps(json.loads(text), ensure_ascii=False).encode()
        return json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise DataError(f"{name}, line {line}: is nested too deep to be read") from error
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name}, line {line}: holds half a character (a surrogate such as \\ud83d alone), which no encoding has; "
            "mend or drop the row"
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name}, line {line + error.lineno - 1}: is not JSON: {error.msg} (character {error.colno})"
        ) from error
    except ValueError as error:  # two values of one name, or a number of more than 4,300 digits
        raise DataError(f"{name}, line {line}: is not JSON that can be read: {error}") from error


def _each_once(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has two values called '{shown(twice)}'")
    return found


def _checked_row(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise DataError(
            f'{where}: takes an object such as {{"text": "..."}}, got {shown(json.dumps(row))}'
        )
    return row
