"""Rows of files and of standard input: the forms, their order, and what cannot be read."""

import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest

from headscope.data.rows import read_rows
from headscope.errors import DataError


def rows(path: Path | str, form: str = "auto", **options: Any) -> list[dict]:
    return [row for _, row in read_rows(str(path), form, "text", **options)]


def test_every_form_gives_its_rows(tmp_path: Path) -> None:
    lines, table, tabbed, objects = (
        tmp_path / name for name in ("a.txt", "a.csv", "a.tsv", "a.jsonl")
    )
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
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO("å\nb\n".encode()), encoding="ascii")
    )
    assert rows("-") == [{"text": "å"}, {"text": "b"}]


def test_a_byte_order_mark_and_a_loud_ending_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO("\ufefftext\nb\n".encode()), encoding="ascii")
    )
    assert rows("-", "csv") == [{"text": "b"}]
    (tmp_path / "DATA.CSV").write_text("text\nb\n")
    assert rows(tmp_path / "DATA.CSV") == [{"text": "b"}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "bad.txt",
            b"fine\n\xff\xfe\n",
            "line 2: byte 0xff is not UTF-8; name the encoding, such as data.encoding=cp1252",
        ),
        (
            "deep.jsonl",
            b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
            "line 1: is nested too deep to be read",
        ),
        (
            "long.jsonl",
            b'{"a": 1' + b"0" * 5000 + b"}",
            "line 1: is not JSON that can be read: Exceeds the limit",
        ),
        (
            "twice.jsonl",
            b'{"a": 1, "a": 2}',
            "line 1: is not JSON that can be read: an object has two values called 'a'",
        ),
        (
            "twice.csv",
            b"id,text,id\n1,fine,2\n",
            "line 1: 2 columns have the name 'id'; rename them",
        ),
        ("cut.csv.gz", gzip.compress(b"text\na\n", mtime=0)[:12], "cannot be unpacked"),
        ("not.csv.gz", b"text\na\n", "cannot be unpacked: Not a gzipped file"),
        ("bad.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: is not JSON"),
        ("list.jsonl", b"[1]\n", "line 1: takes an object"),
        ("bad.csv", b'text\n"a" b\n', "line 2: is not csv"),
        (
            "cut.csv",
            b"text,label\nfine,1\nwell, well,2\n",
            "line 3: has 3 cells, the first line has 2; put quotes",
        ),
        (
            "cut.tsv",
            b"text\ta\na\tb\tc\n",
            "line 2: has 3 cells, the first line has 2; put quotes around .* a tab",
        ),
        (
            "marks.csv",
            b"text;label\none;1\ntwo, three;2\n",
            "line 3: .* its first line has semicolons and no comma",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        rows(tmp_path / name)
    assert name in str(error.value)


def test_empty_cells_at_the_end_of_a_row_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "sheet.csv").write_text("text,label\na,1,,\nb,2\n")
    assert rows(tmp_path / "sheet.csv") == [
        {"text": "a", "label": "1"},
        {"text": "b", "label": "2"},
    ]


def test_other_encodings_and_separators_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text;id\ncafé, crème;1".encode("cp1252"))
    assert rows(tmp_path / "a.csv", encoding="cp1252", separator=";") == [
        {"text": "café, crème", "id": "1"}
    ]
    for encoding in ("utf-16", "shift_jis", "utf-8"):
        (tmp_path / "a.txt").write_bytes("日本\n語".encode(encoding))
        assert rows(tmp_path / "a.txt", encoding=encoding) == [{"text": "日本"}, {"text": "語"}]
    with pytest.raises(
        DataError, match=r"a\.txt: cannot be read as utf-16: UTF-16 stream does not start with BOM"
    ):
        rows(tmp_path / "a.txt", encoding="utf-16")


def test_what_has_come_is_handed_on_before_more_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    to_come = [b"first\nsecond\nthi", b"rd\n"]
    seen: list[int] = []

    def before_waiting() -> None:
        seen.append(len(found))
        if to_come:
            os.write(writing, to_come.pop(0))
        else:
            os.close(writing)

    found: list[dict] = []
    with os.fdopen(reading) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        found.extend(
            row for _, row in read_rows("-", "auto", "text", before_waiting=before_waiting)
        )
    assert [row["text"] for row in found] == ["first", "second", "third"]
    assert seen == [0, 2, 3]
