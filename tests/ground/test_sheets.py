"""Sheets of Excel: cells are read as a csv file would have them."""

from datetime import date
from pathlib import Path

import openpyxl
import pytest

from headscope.data.rows import read_rows
from headscope.ground import sheets
from headscope.ground.errors import DataError, UserWarningMessage
from headscope.ground.plain_rows import Row


def sheet(path: Path, *rows: list[object], others: int = 0) -> str:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for _ in range(others):
        book.create_sheet().append(["other"])
    book.save(path)
    return str(path)


def read(path: Path | str) -> list[Row]:
    return [*read_rows(str(path))]


def test_a_sheet_is_read_as_a_csv_file_would_be(tmp_path: Path) -> None:
    cells = ["a", 3, 2.5, True, date(2026, 11, 27), None]
    path = sheet(tmp_path / "a.xlsx", [*"abcdef"], cells, [None] * 6, ["b"])
    whole = {"a": "a", "b": "3", "c": "2.5", "d": "True", "e": "2026-11-27 00:00:00", "f": ""}
    assert read(path) == [whole, dict.fromkeys("abcdef", "") | {"a": "b"}]


def test_faults_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_text("PK")
    with pytest.raises(DataError, match=r"a\.xlsx, row 0: cannot be read as xlsx"):
        read(tmp_path / "a.xlsx")
    twice = sheet(tmp_path / "b.xlsx", ["a", "a", None], ["1", "2", "3"])
    with pytest.raises(DataError, match="two columns have the same name, of a, a, column_3"):
        read(twice)
    monkeypatch.setattr(sheets, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"needs python-calamine: .*\[excel\]"):
        read(twice)


def test_the_first_of_several_sheets_is_named(tmp_path: Path) -> None:
    path = sheet(tmp_path / "a.xlsx", ["text"], ["a"], others=1)
    with pytest.warns(UserWarningMessage, match="the first of 2 sheets is read, Sheet"):
        assert read(path) == [{"text": "a"}]


def test_cells_with_an_error_or_a_formula_without_a_value_are_named(tmp_path: Path) -> None:
    path = sheet(tmp_path / "a.xlsx", ["text", "n"], ["=A1", 1], ["fine", 2], ["=1/0", "#N/A"])
    message = r"a\.xlsx: 3 cells, the first A2, have an error or a formula without a value"
    with pytest.warns(UserWarningMessage, match=message):
        rows = read(path)
    assert [row["text"] for row in rows] == ["", "fine", ""]
