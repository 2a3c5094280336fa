"""No small file of rows fills the memory: rows, columns and packed files are bounded, and the message says what to do."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from headscope.data.rows import read_own, read_rows
from headscope.data.source import load_source
from headscope.ground.errors import DataError, first_line
from headscope.settings.config import DataConfig

LONG = b"a" * 2**24


def parquet(path: Path, rows: int, text: str) -> None:
    table = pa.table({"text": [text] * rows, "label": ["x"] * rows})
    write_table(table, path, compression="zstd", row_group_size=rows)


def lists(path: Path, values: int, text: str | None) -> None:
    """Write a row with a list of one text, or of nothing, many times."""
    numbers = pa.array([0] * values, pa.int32())
    one = pa.nulls(values, pa.string())
    if text is not None:
        one = pa.DictionaryArray.from_arrays(numbers, [text])
    table = pa.table({"text": ["a"], "labels": pa.ListArray.from_arrays([0, values], one)})
    write_table(table, path, compression="zstd")


def sheet(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "text"
    book.active["XFD1048576"] = "a"  # rows x columns are 17 thousand million
    book.save(path)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cell.csv.gz": (
        lambda path: path.write_bytes(gzip.compress(b"text\n" + 2 * LONG, 1)),
        "row 0: expected at most 16,777,216 characters in a row",
    ),
    "lines.csv.gz": (
        lambda path: path.write_bytes(gzip.compress(b'text\n"' + b"a\n" * 2**23 + b'"', 1)),
        "row 0: holds far more than its size; unpack it",
    ),
    "line.txt": (
        lambda path: path.write_bytes(LONG + b"aa"),
        "row 0: expected at most 16,777,216 characters in a row",
    ),
    "rows.jsonl.xz": (
        lambda path: path.write_bytes(lzma.compress(b'{"text":"%b"}\n' % LONG[:9_000] * 15_000, preset=0)),
        "holds far more than its size; unpack it, if that is right",
    ),
    "list.json": (
        lambda path: path.write_bytes(b"[" + b" " * 2**25 + b"]"),
        "expected at most 33,554,432 characters of json; write an object a line, as .jsonl",
    ),
    "columns.csv": (
        lambda path: path.write_bytes(b",".join(b"%d" % number for number in range(4_097))),
        "expected at most 4,096 columns, got 4,097",
    ),
    "ragged.csv": (
        lambda path: path.write_bytes(
            b",".join(b"%d" % number for number in range(4_096)) + b"\na" * 5_000
        ),
        "has 1 cells, as most rows; the first has 4,096",
    ),
    "dictionary.parquet": (
        lambda path: parquet(path, 200, "a" * 2**20),
        "holds far more than its size; write it as csv, if that is right",
    ),
    "cell.parquet": (lambda path: parquet(path, 1, "a" * (2**26 + 1)), "characters in a cell"),
    "lists.parquet": (lambda path: lists(path, 200, "a" * 2**20), "holds far more than its size"),
    "values.parquet": (lambda path: lists(path, 2**24, None), "holds far more than its size"),
    "sheet.xlsx": (sheet, "cannot be read as xlsx: it takes more than 1.5 GB or a minute; save it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_small_file_that_holds_much_is_an_error(tmp_path: Path, name: str) -> None:
    write, words = CASES[name]
    write(tmp_path / name)
    with pytest.raises(DataError, match=words.replace(".", r"\.")):
        for _ in read_rows(str(tmp_path / name)):
            pass
    if name.endswith(".parquet"):  # which `datasets` reads
        with pytest.raises(DataError, match=words.replace(".", r"\.")):
            load_source(DataConfig(path=str(tmp_path / name), cache_dir=str(tmp_path / "cache")))


def test_lists_and_objects_of_parquet_are_read_as_they_are(tmp_path: Path) -> None:
    pairs = pa.map_(pa.string(), pa.list_(pa.string(), 2))
    rows = [{"map": [("a", ["b", "c"])], "object": {"a": [1, 2]}}, {"map": None, "object": None}]
    kinds = [("map", pairs), ("object", pa.struct([("a", pa.list_(pa.int64()))]))]
    write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), tmp_path / "a.parquet")
    assert [*read_rows(str(tmp_path / "a.parquet"))] == rows


def test_rows_within_the_bounds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(b"text,b\n" + 3 * (LONG[:-20] + b",\n"), 1))
    assert [len(row["text"]) for row in read_rows(str(path))] == [len(LONG) - 20] * 3


def test_a_file_of_ours_has_no_more_rows_than_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "review.csv"
    path.write_text("key\n" + "a\n" * (2**20 + 1))
    with pytest.raises(DataError, match=r"review\.csv: expected at most 1,048,576 rows, got more"):
        read_own(str(path), "key", lambda rows: False)


def test_what_stands_below_a_colon_is_said_too() -> None:
    below = (
        "Validation error for field 'hidden_size':\n    TypeError: expected int, got str\n  more"
    )
    assert first_line(ValueError(below)) == below.split("\n  more")[0].replace("\n   ", "")
    assert first_line(ValueError("one\ntwo")) == "one"
