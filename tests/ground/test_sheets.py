"""Sheets of Excel: cells are read as a csv file would have them; what is written is text, no formula."""

from datetime import date
from pathlib import Path

import openpyxl
import pytest

from headscope.data.rows import read_rows
from headscope.ground import sheets
from headscope.ground.errors import DataError, UserWarningMessage
from headscope.ground.plain_rows import Row
from headscope.ground.tables import write_rows

HOSTILE = [
    '=HYPERLINK("http://a.example", 1)',
    "+1+1",
    "@SUM(1)",
    "-1+2",
    "http://a.example",
    "007",
]
HOSTILE += ["'=1", "_x0041_", "a\nb\tc", " a ", "日本語 🙂", "<b>&amp;"]


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


def test_texts_come_back_as_they_were_and_none_is_a_formula_or_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    given = [{"text": text, "prediction": "a", "probability_a": 0.5, "n": 1} for text in HOSTILE]
    write_rows(str(path), given, [])
    assert [row["text"] for row in read(path)] == HOSTILE
    book = openpyxl.load_workbook(path)
    for row in book.active.iter_rows(min_row=2):
        kinds = [cell.data_type for cell in row]
        assert kinds == ["s", "s", "n", "n"]
        assert not any(cell.hyperlink for cell in row)


def test_gaps_lists_and_control_characters_become_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    write_rows(str(path), [{"a": None, "b": float("nan"), "c": ["x", "y"], "d": "\x1b[1m"}], [])
    assert read(path) == [{"a": "", "b": "", "c": '["x","y"]', "d": "\ufffd[1m"}]
    write_rows(str(path), [], ["text"])
    assert read(path) == []


def test_a_text_that_a_cell_cannot_hold_is_cut_and_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="truncated to 32767 characters"):
        write_rows(str(tmp_path / "a.xlsx"), [{"text": "a" * 32_768}], [])
    assert len(read(tmp_path / "a.xlsx")[0]["text"]) == 32_767


def test_faults_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_text("PK")
    with pytest.raises(DataError, match=r"a\.xlsx, row 0: cannot be read as xlsx"):
        read(tmp_path / "a.xlsx")
    twice = sheet(tmp_path / "b.xlsx", ["a", "a", None], ["1", "2", "3"])
    with pytest.raises(DataError, match="two columns have the same name, of a, a, column_3"):
        read(twice)
    monkeypatch.setattr(sheets, "find_spec", lambda name: None)
    for call in (lambda: read(twice), lambda: write_rows(twice, [], ["a"])):
        with pytest.raises(DataError, match=r"needs python-calamine and xlsxwriter.*\[excel\]"):
            call()


def test_the_first_of_several_sheets_is_named(tmp_path: Path) -> None:
    path = sheet(tmp_path / "a.xlsx", ["text"], ["a"], others=1)
    with pytest.warns(UserWarningMessage, match="the first of 2 sheets is read, Sheet"):
        assert read(path) == [{"text": "a"}]
