"""Rows out: whole, with nothing that a spreadsheet computes or a terminal obeys."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from headscope.cli.predict import row_writer
from headscope.data.rows import read_rows
from headscope.ground.errors import DataError


def test_rows_are_written_as_csv_and_jsonl(tmp_path: Path) -> None:
    written = [{"text": 'a, "b"\nc', "prediction": "x"}, {"text": "日本", "prediction": "y"}]
    for name in ("out.csv", "below/out.jsonl"):
        with row_writer(str(tmp_path / name), []) as write:
            for row in written:
                write(row)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == written
    lines = (tmp_path / "below/out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == written


def test_an_error_leaves_the_old_file_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    with (
        pytest.raises(KeyboardInterrupt, match="on purpose"),
        row_writer(str(tmp_path / "out.csv"), []) as write,
    ):
        write({"text": "new"})
        raise KeyboardInterrupt("on purpose")
    assert (tmp_path / "out.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_row_with_a_column_of_its_own_is_refused_by_csv(tmp_path: Path) -> None:
    words = r"same columns in every row, got note later; write a \.jsonl file"
    with pytest.raises(DataError, match=words), row_writer(str(tmp_path / "out.csv"), []) as write:
        write({"text": "a"})
        write({"text": "b", "note": 1})
    assert list(tmp_path.iterdir()) == []


def as_csv(path: Path, row: dict[str, Any]) -> list[list[str]]:
    with row_writer(str(path), []) as write:
        write(row)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    "cell",
    [
        "=cmd|'/c calc'!A0",
        "+cmd|'/c calc'!A0",
        "-2+cmd|'/c calc'!A0",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        " =1",
        "＝A1",
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path, cell: str) -> None:
    assert as_csv(tmp_path / "out.csv", {cell: cell}) == [[f"'{cell}"], [f"'{cell}"]]


def test_what_is_no_formula_stays_as_it_is_in_csv(tmp_path: Path) -> None:
    cells = ["-1.5", "+3", "-1e-05", "-5 %", "-1.234,50", "+1 (555) 123-4567", "-", "a=b"]
    cells += ["one\ttwo\r\nthree", "'", "日本"]
    row = dict(zip("abcdefghijk", cells, strict=True))
    assert as_csv(tmp_path / "out.csv", row) == [list(row), cells]


def test_control_characters_do_not_get_into_csv_and_are_escaped_in_json(tmp_path: Path) -> None:
    text = "\x1b[2J\x9b31m\x00\x7f\u2028"
    assert as_csv(tmp_path / "out.csv", {text: text})[1] == ["\ufffd[2J\ufffd31m\ufffd\ufffd\u2028"]
    with row_writer(str(tmp_path / "out.jsonl"), []) as write:
        write({"text": text})
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert line.isprintable()
    assert json.loads(line) == {"text": text}


def test_json_is_strict_where_python_is_not(tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    (tmp_path / "in.jsonl").write_text(
        '{"a": NaN, "b": [Infinity, 1e999, -0.5], "c": {"d": -Infinity}}'
    )
    with row_writer(str(tmp_path / "out.jsonl"), []) as write:
        write(next(read_rows(str(tmp_path / "in.jsonl"))))
    found = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=refuse)
    assert found == {"a": None, "b": [None, None, -0.5], "c": {"d": None}}


def test_a_csv_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    with row_writer(str(tmp_path / "out.csv"), ["text", "prediction"]):
        pass
    assert (tmp_path / "out.csv").read_text() == "text,prediction\n"


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_closed_stream_is_named(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sys.{stream}", None)
    with pytest.raises(
        DataError, match=f"standard {stream[3:]}put is closed; name a file: {stream[3:]}put="
    ):
        next(read_rows("-")) if stream == "stdin" else row_writer("-", []).__enter__()
