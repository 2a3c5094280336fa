"""Rows of lines, csv, tsv, jsonl or json, by nothing but Python's own library.

`headscope export` puts this file beside classify.py, so an exported model reads what `headscope
predict` reads.

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
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "lines",
}
PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
# Characters of a row, instead of csv's 131,072 of a cell, and of a json file, which is held whole:
# empty objects take 32 bytes a character.
MOST_IN_ROW = 2**24
MOST_IN_FILE = 2**25
MOST_COLUMNS = 4_096
# A packed file may be as many times its size, or this large: a small one could fill the disk.
MOST_PACKED = 200
MOST_UNPACKED = 2**27
# A file says itself what separates its cells: so Excel reads it everywhere, and shows no such row.
SEPARATOR_LINE = re.compile(r"sep=(.)[\r\n]*")
CELLS = re.compile(r"[^;\t\r\n]+")  # what a spreadsheet may take for a cell
# Full-width too, which Japanese Excel takes.
FORMULA = re.compile(r"[\s\"\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
# Also -5 %, +1 (555) 123: no letter, nothing to call.
NUMBER = re.compile(r"[-+][\d\s.,:%/()+-]*([eE][-+]?\d+)?")
UNREADABLE = (
    csv.Error,
    EOFError,
    OSError,
    RecursionError,
    ValueError,
    lzma.LZMAError,
    zlib.error,
)


def format_of(path: Path, formats: Mapping[str, str] = FORMATS) -> str:
    """Return the format of a file by the ending of its name; ValueError for another ending."""
    name = path.with_suffix("") if path.suffix in PACKED else path
    if name.suffix.lower() not in formats:
        packed = ", ".join(PACKED)
        remedy = (
            "; save the sheet as csv in UTF-8" if path.suffix.startswith((".xls", ".ods")) else ""
        )
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(formats)}, perhaps with one of "
            f"{packed} behind it{remedy}"
        )
    return formats[name.suffix.lower()]


def rows_of(
    path: str,
    form: str,
    text_column: str,
    encoding: str = "utf-8",
    separator: str | None = None,
    hint: Callable[[list[str]], str] = lambda names: "",
) -> Iterator[Row]:
    """Yield each row of a file, or of standard input ("-"); one of `UNREADABLE` if it has a fault.

    `hint` returns what to do about a header, for a row that does not fit it.
    """
    with open_text(path, encoding) as file:
        lines = Lines(file, path)
        if form == "lines":
            for line in lines:
                yield {text_column: line.rstrip("\r\n")}
                lines.held = 0
        elif form in ("csv", "tsv"):
            for row in csv_rows(lines, separator or {"csv": ",", "tsv": "\t"}[form], hint):
                yield row
                lines.held = 0
        elif form == "jsonl":
            for line in lines:
                yield from json_rows([line])
                lines.held = 0
        else:
            text = file.read(MOST_IN_FILE + 1)
            if len(text) > MOST_IN_FILE:
                most = f"at most {MOST_IN_FILE:,} characters of json"
                raise ValueError(f"expected {most}; write an object a line, as .jsonl")
            yield from json_rows([text] if text.lstrip().startswith("[") else text.split("\n"))


@contextmanager
def open_text(path: str, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for "-", as text: line ends as they are, without a BOM."""
    raw: Any
    if path == "-":
        raw = io.BufferedReader(sys.stdin.buffer)
    else:
        unpack: Any = PACKED.get(Path(path).suffix, open)
        raw = unpack(path, "rb")
    with raw:
        if codecs.lookup(encoding).name == "utf-8":
            is_wide = raw.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if is_wide else "utf-8-sig"
        yield io.TextIOWrapper(raw, encoding, newline="")


class Lines:
    """The lines of a text file; ValueError where those `held`, of one row, or all are too long."""

    def __init__(self, file: io.TextIOWrapper, path: str = "") -> None:
        self.file = file
        self.held = 0
        self.left = float("inf")
        if Path(path).suffix in PACKED:
            self.left = max(MOST_UNPACKED, MOST_PACKED * Path(path).stat().st_size)

    def __iter__(self) -> Iterator[str]:
        """Yield each line with its end."""
        while line := self.file.readline(MOST_IN_ROW + 1):
            self.held += len(line)
            self.left -= 16 + len(line)  # what an empty one takes
            if self.left < 0:
                raise ValueError("holds far more than its size; unpack it, if that is right")
            if self.held > MOST_IN_ROW:
                raise ValueError(f"expected at most {MOST_IN_ROW:,} characters in a row")
            yield line


def csv_rows(
    file: Iterable[str],
    separator: str,
    hint: Callable[[list[str]], str] = lambda names: "",
    is_guarded: bool = True,
) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file; ValueError for one with text beyond its columns.

    A column without a name, such as a spreadsheet adds behind the others, is called by its number.
    An empty line is no row, but where there is one column alone, whose empty cells are written so.
    `is_guarded` says whether what headscope wrote has a ' before formulas.
    """
    csv.field_size_limit(MOST_IN_ROW)
    lines = iter(file)
    first = next(lines, "")
    delimiter = separator.replace("\\t", "\t")
    if own := SEPARATOR_LINE.fullmatch(first):
        delimiter = own[1]
    else:
        lines = chain([first], lines)
    table = csv.reader(lines, delimiter=delimiter, strict=True)
    header = enumerate(next(filter(None, table), []), start=1)
    names = [name or f"column_{number}" for number, name in header]
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"expected at most {MOST_COLUMNS:,} columns, got {len(names):,}")
    if len(set(names)) < len(names):
        listed = ", ".join(names)[:60]
        raise ValueError(f"two columns have the same name, of {listed}; rename one")
    restored = from_csv_cell if is_guarded and is_own(names) else str
    keys = [*map(restored, names)]
    added = 0  # cells that rows lack
    for cells in table:
        if not cells and len(names) > 1:
            continue
        if any(cells[len(names) :]):
            raise ValueError(
                f"has more cells than the first line, which has {len(names)}; put quotes around a "
                f"text with a {delimiter!r} in it{hint(names)}"
            )
        added += len(names) - len(cells)
        if added > MOST_IN_ROW:
            raise ValueError(f"has {len(cells)} cells, as most rows; the first has {len(names):,}")
        cells += [""] * (len(names) - len(cells))
        yield dict(zip(keys, map(restored, cells), strict=False))


def is_own(names: Iterable[str]) -> bool:
    """Tell by its columns whether headscope wrote a csv file: there a ' stands before formulas."""
    has = {name.partition("_")[0] for name in names}
    return has >= {"key", "corrected"} or has >= {"prediction", "probability"}


def from_csv_cell(text: str) -> str:
    """Return the text that `headscope.ground.tables.csv_cell` made this cell of."""

    def unguarded(cell: re.Match[str]) -> str:
        return cell[0][1:] if cell[0].startswith("'") and is_formula(cell[0]) else cell[0]

    return CELLS.sub(unguarded, text)


def is_formula(cell: str) -> bool:
    """Tell whether a cell is one, or would be without a ' before it, so that each has its own '."""
    bare = cell.lstrip("'")
    return FORMULA.match(bare) is not None and not NUMBER.fullmatch(bare.strip())


def json_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yield the objects of lines, each of which has one, or a list of them.

    U+FFFD replaces half a surrogate pair, which no encoding has.
    """
    for line in filter(str.strip, lines):
        # The standard of JSON has neither NaN nor an infinity.
        hooks: Any = {"parse_float": _number, "parse_constant": lambda name: None}
        value = json.loads(line, object_pairs_hook=_object, **hooks)
        if "\\ud" in line.lower():
            value = json.loads(HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                got = json.dumps(row)[:60]
                raise ValueError(f'expected an object such as {{"text": "..."}}, got {got}')
            yield row


def _object(pairs: list[tuple[str, Any]]) -> Row:
    """Return an object of JSON; ValueError for a key that it has twice, as for a csv column."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"an object has a key twice, of {', '.join(row)[:60]}; rename one")
    return row


def _number(digits: str) -> float | str:
    """Return a number of JSON; as it is written, where no float is as large."""
    number = float(digits)
    return digits if math.isinf(number) else number


def as_text(value: object) -> str | None:
    """Return the text that a value of a column of texts stands for; None if it is no text.

    A missing one (None, NaN, pandas' NA) is an empty text; U+FFFD replaces half a surrogate pair.
    """
    if isinstance(value, str):
        return HALF.sub("\ufffd", value)
    is_missing = value is None or type(value).__name__ == "NAType"
    return "" if is_missing or (isinstance(value, float) and value != value) else None


def renamed(row: Row, answer: Row) -> Row:
    """Return the row with another name, input_..., for each column that the answer has too."""

    def free(name: str) -> str:
        while name in answer or name in row:
            name = f"input_{name}"
        return name

    return {free(name) if name in answer else name: value for name, value in row.items()}
