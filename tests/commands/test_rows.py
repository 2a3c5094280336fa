"""Rows in, rows out: the forms, the order, and no half-written output."""

import csv
import io
import json
from pathlib import Path

import pytest

from headscope.commands.predict import read_rows, row_writer
from headscope.errors import DataError


def rows(path: Path, form: str = "auto") -> list[dict]:
    return list(read_rows(str(path), form, "text"))


def test_every_form_gives_its_rows(tmp_path: Path) -> None:
    lines, table, tabbed, objects = (tmp_path / name for name in ("a.txt", "a.csv", "a.tsv", "a.jsonl"))
    lines.write_text("first\nsecond, with a comma\n", encoding="utf-8")
    assert rows(lines) == [{"text": "first"}, {"text": "second, with a comma"}]
    table.write_text('\ufefftext,id\n"one\ntwo, ""three""",1\n', encoding="utf-8")
    assert rows(table) == [{"text": 'one\ntwo, "three"', "id": "1"}]
    tabbed.write_text("text\tid\na, b\t1\n", encoding="utf-8")
    assert rows(tabbed) == [{"text": "a, b", "id": "1"}]
    objects.write_text('{"text": "日本"}\n{"text": "x", "n": 3}\n', encoding="utf-8")
    assert rows(objects) == [{"text": "日本"}, {"text": "x", "n": 3}]
    assert rows(table, "lines")[0] == {"text": "text,id"}


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("å\nb\n".encode()), encoding="ascii"))
    assert list(read_rows("-", "auto", "text")) == [{"text": "å"}, {"text": "b"}]


def test_a_byte_order_mark_and_a_loud_ending_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\ufefftext\nb\n".encode()), encoding="ascii"))
    assert list(read_rows("-", "csv", "text")) == [{"text": "b"}]
    (tmp_path / "DATA.CSV").write_text("text\nb\n")
    assert list(read_rows(str(tmp_path / "DATA.CSV"), "auto", "text")) == [{"text": "b"}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bad.txt", b"fine\n\xff\xfe\n", "is not UTF-8"),
        ("bad.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: is not JSON"),
        ("list.jsonl", b"[1]\n", "line 1: takes an object"),
        ("bad.csv", b'text\n"a" b\n', "line 1: is not csv"),
        ("cut.csv", b"text,label\nfine,1\nwell, well,2\n", "line 3: has 3 cells, the first line has 2; put quotes"),
        ("cut.tsv", b"text\ta\na\tb\tc\n", "line 2: has 3 cells, the first line has 2; put quotes around .* a tab"),
        ("marks.csv", b"text;label\none;1\ntwo, three;2\n", "line 3: .* its first line has semicolons and no comma"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        rows(tmp_path / name)
    assert name in str(error.value)


def test_empty_cells_at_the_end_of_a_row_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "sheet.csv").write_text("text,label\na,1,,\nb,2\n")
    assert rows(tmp_path / "sheet.csv") == [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}]


def test_rows_are_written_as_csv_and_jsonl(tmp_path: Path) -> None:
    written = [{"text": 'a, "b"\nc', "prediction": "x"}, {"text": "日本", "prediction": "y"}]
    for name in ("out.csv", "below/out.jsonl"):
        with row_writer(str(tmp_path / name)) as write:
            for row in written:
                write(row)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == written
    lines = (tmp_path / "below/out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == written


def test_an_error_leaves_the_old_file_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    with pytest.raises(RuntimeError, match="on purpose"), row_writer(str(tmp_path / "out.csv")) as write:
        write({"text": "new"})
        raise RuntimeError("on purpose")
    assert (tmp_path / "out.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_row_with_a_column_of_its_own_is_refused_by_csv(tmp_path: Path) -> None:
    words = r"same columns in every row.*'note'.*\.jsonl"
    with pytest.raises(DataError, match=words), row_writer(str(tmp_path / "out.csv")) as write:
        write({"text": "a"})
        write({"text": "b", "note": 1})
    assert list(tmp_path.iterdir()) == []
