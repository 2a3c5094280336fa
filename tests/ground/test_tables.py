"""Rows out: whole, with nothing that a spreadsheet computes or a terminal obeys."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.rows import read_rows
from headscope.ground.errors import DataError
from headscope.ground.plain_rows import from_csv_cell
from headscope.ground.tables import csv_cell, write_frame, write_rows


def test_rows_are_written_as_csv_and_jsonl(tmp_path: Path) -> None:
    written = [{"text": 'a, "b"\nc', "prediction": "x"}, {"text": "日本", "prediction": "y"}]
    for name in ("out.csv", "below/out.jsonl"):
        write_rows(str(tmp_path / name), written, [])
        assert [*read_rows(str(tmp_path / name))] == written
    write_rows(str(tmp_path / "none.csv"), [], ["text", "prediction"])
    assert (tmp_path / "none.csv").read_text() == '"text","prediction"\n'


def test_an_error_leaves_the_old_file_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    words = r"same columns in every row, got note later; write a \.jsonl file"
    with pytest.raises(DataError, match=words):
        write_rows(str(tmp_path / "out.csv"), [{"text": "a"}, {"text": "b", "note": 1}], [])
    assert (tmp_path / "out.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_a_cell_that_json_cannot_hold_is_one_message(tmp_path: Path, name: str) -> None:
    deep = json.loads('{"a":' * 900 + "1" + "}" * 900)
    words = "output: a cell cannot be written as JSON: .*; drop its column"
    with pytest.raises(DataError, match=words):
        write_rows(str(tmp_path / name), [{"text": "a", "b": deep}], [])


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        *((cell, f"'{cell}") for cell in ("=cmd|'/c calc'!A0", "-2+cmd|'/c calc'!A0", "@SUM(1)")),
        *((cell, f"'{cell}") for cell in (" =1", "＝A1")),
        ("\t=1", "\t'=1"),
        ("\r=1", "\r'=1"),
        *((cell, cell) for cell in ("-1.5", "+3", "-1e-05", "-5 %", "-1.234,50", "-", "a=b", "'")),
        *((cell, cell) for cell in ("+1 (555) 123-4567", "one\ttwo\r\nthree", "日本")),
        ("foo;=cmd", "foo;'=cmd"),  # where ; separates
        ('a\n-b;"=c"\t @d; -1.5', "a\n'-b;'\"=c\"\t' @d; -1.5"),
        ("'@support", "''@support"),
        ("\x1b[2J\x9b31m\x00\x7f\u2028", "\ufffd[2J\ufffd31m\ufffd\ufffd\u2028"),
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula_or_a_command(
    tmp_path: Path, cell: str, written: str
) -> None:
    write_rows(str(tmp_path / "out.csv"), [{cell: cell}], [])
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [*csv.reader(file)] == [[written], [written]]


@given(
    st.text(st.sampled_from("'\"=+-@＝;,\t\r\n 1a\ufeff"))
    | st.text(st.characters(exclude_categories=["Cc", "Cs"]))
)
def test_every_text_comes_back_from_a_cell_which_is_no_formula_wherever_it_is_cut(
    text: str,
) -> None:
    cell = csv_cell(text)
    assert from_csv_cell(cell) == text
    for part in re.split("[;\t\r\n]", cell):
        first = part.lstrip(' "\ufeff\u200b\u2003\u3000')[:1]
        assert first not in [*"=@＝＠＋－"]
        assert first not in [*"+-"] or not re.search("[A-DF-Za-df-z]", part)


def test_all_text_of_a_csv_file_stands_in_quotation_marks(tmp_path: Path) -> None:
    """Or `-1,2+cmd` would be a formula where ; separates."""
    table = pd.DataFrame({"=a": [-1.0, float("nan")], "b;=c": ["x;=cmd", None], "n": [1, 2]})
    lines = ['"\'=a","b;\'=c","n"', '-1.0,"x;\'=cmd",1', '"","",2']
    write_frame(tmp_path / "frame.csv", table)
    assert (tmp_path / "frame.csv").read_text().splitlines() == lines
    write_rows(
        str(tmp_path / "rows.csv"),
        table.astype(object).where(table.notna(), None).to_dict("records"),
        [],
    )
    assert (tmp_path / "rows.csv").read_text().splitlines() == lines


def test_json_is_strict_where_python_is_not_and_escapes_control_characters(tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    text = "\x1b[2J\x9b31m\x00\x7f\u2028"
    row: dict[str, Any] = {"a": float("nan"), "b": [float("inf"), -0.5], "c": {"d": text}}
    write_rows(str(tmp_path / "out.jsonl"), [row], [])
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert line.isprintable()
    expected = {"a": None, "b": [None, -0.5], "c": {"d": text}}
    assert json.loads(line, parse_constant=refuse) == expected


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_closed_stream_is_named(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sys.{stream}", None)
    words = f"standard {stream[3:]}put is closed; name a file: {stream[3:]}put="
    with pytest.raises(DataError, match=words):
        next(read_rows("-")) if stream == "stdin" else write_rows("-", [], [])
