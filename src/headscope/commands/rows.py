"""Reading rows of text one by one and writing rows of predictions, so that a file may be larger than memory."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from headscope.data.separators import separator_hint
from headscope.errors import DataError
from headscope.files import replacing

Row = dict[str, Any]
RowWriter = Callable[[Mapping[str, Any]], None]  # writes one row; the first fixes a csv file's columns
BEYOND = "\0"  # key of the cells that a row has beyond the columns
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def read_rows(path: str, form: str, text_column: str) -> Iterator[Row]:
    """Yield the rows of a file or, for `-`, of standard input.

    Args:
        path: a file, or `-`.
        form: lines (each is a text), csv, tsv, jsonl, or auto: by the file's ending, else lines.
        text_column: the name under which a line is handed on.

    Raises:
        DataError: for what is not UTF-8 or not of that form; it names the file and the line.
    """
    form = ENDINGS.get(Path(path).suffix.lower(), "lines") if form == "auto" else form
    shown = "standard input" if path == "-" else path
    with _opened(path) as file:
        try:
            yield from _parsed(file, form, text_column, shown)
        except UnicodeDecodeError as error:
            raise DataError(f"{shown}: is not UTF-8 ({error.reason}); convert it, e.g. with iconv") from error


@contextmanager
def _opened(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", newline="")  # type: ignore[union-attr]
        yield sys.stdin
    else:
        # utf-8-sig: a byte order mark, as spreadsheets write it, is not part of the first column's name.
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            yield file


def _parsed(file: Iterable[str], form: str, text_column: str, shown: str) -> Iterator[Row]:
    if form == "lines":
        yield from ({text_column: line.rstrip("\r\n")} for line in file)
    elif form == "jsonl":
        yield from _json_rows(file, shown)
    else:
        csv.field_size_limit(2**31 - 1)  # a text may be longer than the 131,072 characters that csv allows by default
        reader = csv.DictReader(file, delimiter="\t" if form == "tsv" else ",", restkey=BEYOND, strict=True)
        try:
            for row in reader:
                _check_cells(row, reader, "tab" if form == "tsv" else "comma", shown)
                yield row
        except csv.Error as error:
            raise DataError(f"{shown}, line {reader.line_num}: is not {form}: {error}") from error


def _check_cells(row: Row, reader: "csv.DictReader[str]", mark: str, shown: str) -> None:
    """Refuse a row with more cells than columns: a text with a comma and no quotes would be cut at it.

    Empty cells at the end, as spreadsheets leave them, are dropped.
    """
    beyond = row.pop(BEYOND, [])
    if any(beyond):
        names = list(reader.fieldnames or [])
        raise DataError(
            f"{shown}, line {reader.line_num}: has {len(names) + len(beyond)} cells, the first line has {len(names)}; "
            f"put quotes around a text with a {mark} in it{separator_hint(','.join(names))}"
        )


def _json_rows(file: Iterable[str], shown: str) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{shown}, line {number}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f'{shown}, line {number}: takes an object such as {{"text": "..."}}, got {line[:60]!r}')
        broken = [name for name, value in row.items() if isinstance(value, str) and not _is_whole(value)]
        if broken:  # of all forms JSON's escapes alone can write it
            raise DataError(
                f"{shown}, row {number}: column {broken[0]!r} holds half a character (a surrogate such as "
                "\\ud83d alone), which no encoding has; mend or drop the row"
            )
        yield row


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def row_writer(path: str) -> Iterator[RowWriter]:
    """Give a function that writes rows to a csv or jsonl file, or to standard output as jsonl for `-`.

    The file appears, whole, when the block is left without an error.
    """
    if path == "-":
        yield _jsonl(sys.stdout)
        return
    target = Path(path)
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield _csv(file) if target.suffix == ".csv" else _jsonl(file)


def _jsonl(file: TextIO) -> RowWriter:
    encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder anew for every row

    def write(row: Mapping[str, Any]) -> None:
        file.write(encode(row) + "\n")

    return write


def _csv(file: TextIO) -> RowWriter:
    writers: list[csv.DictWriter[str]] = []

    def write(row: Mapping[str, Any]) -> None:
        if not writers:
            writers.append(csv.DictWriter(file, list(row)))
            writers[0].writeheader()
        try:
            writers[0].writerow(row)
        except ValueError as error:
            raise DataError(f"a csv file has the same columns in every row: {error}; write a .jsonl file") from error

    return write
