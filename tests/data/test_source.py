"""Every form of source gives the same rows, and what cannot be read is one message that names the file."""

import bz2
import gzip
import io
import json
import logging
import lzma
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets.exceptions import DatasetNotFoundError
from pyarrow import parquet

from headscope.data.rows import read_rows
from headscope.data.source import load_source
from headscope.ground.errors import ConfigError, DataError
from headscope.ground.plain_rows import as_text
from headscope.settings.checks import check
from headscope.settings.config import DataConfig, TrainConfig

BOM = "\ufeff"
AB = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
TABLE = "text,label\na,x\nb,y\n"
JAPANESE = [{"text": "日本語ソ表", "label": "x"}]


def columns(**cells: Any) -> bytes:
    """Return a parquet file."""
    file = io.BytesIO()
    parquet.write_table(pa.table(cells), file)
    return file.getvalue()


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def load(path: Path, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    loaded = load_source(DataConfig(path=str(path), cache_dir=str(path.parent), **settings))
    return {split: list(rows) for split, rows in loaded.items()}


def labelled(*labels: Any, text: str = "a") -> list[dict[str, Any]]:
    return [{"text": text, "label": label} for label in labels]


VIEWS = pa.large_list(pa.struct([("b", pa.string_view())]))
READ: list[tuple[str, str | bytes, dict[str, str], list[dict[str, Any]]]] = [
    ("a.csv", TABLE, {}, AB),
    ("A.CSV", TABLE, {}, AB),
    ("a.csv", BOM + TABLE, {}, AB),
    ("a.csv", TABLE.encode("utf-16"), {}, AB),
    ("a.csv", TABLE.replace("\n", "\r\n"), {}, AB),
    ("a.csv", TABLE + "\n\n", {}, AB),
    ("a.csv", "text,label,,\na,x,1,2\n", {}, AB[:1]),
    ("a.csv", "text,label\na,x,,\n", {}, AB[:1]),
    ("a.csv", 'text,label\n"so ""quoted"", it\nis",x\n', {}, labelled("x", text='so "quoted", it\nis')),
    ("a.csv", 'text,label\nso "quoted" it is,x\n', {}, labelled("x", text='so "quoted" it is')),
    ("a.csv", "text,label\nNone,NA\nnull,n/a\nnan,nan\n", {},
     [{"text": a, "label": b} for a, b in (("None", "NA"), ("null", "n/a"), ("nan", "nan"))]),
    ("a.csv", "text,label\na,007\na,1.10\na,2024-01-02\na,True\na,\n", {}, labelled("007", "1.10", "2024-01-02", "True", "")),
    ("a.csv", f"text,label\n{'x' * 3_000_000},x\n", {}, labelled("x", text="x" * 3_000_000)),
    ("a.csv", "sep=;\r\ntext;label\r\na, b;x\r\n", {}, labelled("x", text="a, b")),
    ("a.csv", "text;label\na, b;x\n", {"separator": ";"}, labelled("x", text="a, b")),
    ("a.csv", "text\tlabel\na, b\tx\n", {"separator": "\\t"}, labelled("x", text="a, b")),
    ("a.csv", "text,label\n日本語ソ表,x\n".encode("shift_jis"), {"encoding": "Shift-JIS"}, JAPANESE),
    ("a.csv", "text,label\n日本語ソ表,x\n".encode("utf-16-le"), {"encoding": "utf-16-le"}, JAPANESE),
    ("a.tsv", "text\tlabel\na, b\tx\n", {}, labelled("x", text="a, b")),
    ("a.csv.gz", gzip.compress(TABLE.encode(), mtime=0), {}, AB),
    ("a.csv.bz2", bz2.compress(TABLE.encode()), {}, AB),
    ("a.csv.xz", lzma.compress(TABLE.encode()), {}, AB),
    ("a.jsonl", "\n\n".join(map(json.dumps, AB)), {}, AB),
    ("a.jsonl", json.dumps(AB), {}, AB),
    ("a.json", json.dumps(AB), {}, AB),
    ("a.json", BOM + json.dumps(AB, indent=2), {}, AB),
    ("a.json", "\n".join(map(json.dumps, AB)), {}, AB),
    ("a.jsonl", r'{"text": "\ud83d \ud83d\ude00", "label": "x"}', {}, labelled("x", text="\ufffd 😀")),
    ("a.jsonl", '{"text": "a", "label": 1, "more": {}}\n{"text": "a", "label": null}', {}, labelled(1, None)),
    ("a.jsonl", '{"text": null, "label": 1}\n{"label": 2}\n{"text": NaN, "label": 3}', {}, labelled(1, 2, 3, text="")),
    *(("a.json", json.dumps(labelled(*labels)), {}, labelled(*labels))
      for labels in (["10", "9"], [True, False], ["2024-01-02"], [["a", "b"], [], None])),
    ("a.parquet", columns(text=["a", "b"], label=["x", "y"]), {}, AB),
    ("a.parquet", columns(text=pa.array(["a", "b"], pa.string_view()), label=["x", "y"]), {}, AB),
    ("a.parquet", columns(text=["a"], label=pa.array([[{"b": "c"}]], VIEWS)), {}, labelled([{"b": "c"}])),
    ("a.parquet", columns(text=pa.array(["a", "b"], pa.large_string()), label=[2, 3]), {},
     [{"text": "a", "label": 2}, {"text": "b", "label": 3}]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "settings", "rows"), READ)
def test_a_file_is_read(
    tmp_path: Path, name: str, content: str | bytes, settings: dict[str, str], rows: list[Any]
) -> None:
    path = write(tmp_path / "folder" / name, content)
    assert load(path, **settings) == {"train": rows}


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What `datasets` logs, which would reach the user's screen."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("datasets").addHandler(handler)
    yield messages
    logging.getLogger("datasets").removeHandler(handler)


MORE = ", row 1: has more cells than the first line, which has "
QUOTED = 'a text with a " in it is written "so ""quoted"" it is"'
REFUSED: list[tuple[str, str | bytes, str]] = [
    ("a.csv", "text,label\na,1\n\nb,2,3\n", f"{MORE}2; put quotes around a text with a ',' in it"),
    ("a.csv", "text;label\n1;1\na, b;2\n", f"{MORE}1; put quotes around a text with a ',' in it; its first line has no comma: set \"data.separator=;\""),
    ("a.csv", "text\tlabel\na\tx\n", ": no column 'text' for data.text_column; it has text\\tlabel (a table's first line holds the names); its first line has no comma: set \"data.separator=\\t\""),
    ("a.csv", "good film,x\nbad film,y\n", ": no column 'text' for data.text_column; it has good film, x (a table's first line holds the names)"),
    ("a.csv", "text ,label\na,x\n", ": no column 'text' for data.text_column; it has 'text ', label "),
    ("a.csv", 'text,label\n"one\ntwo",1\n"three,2\n', f", row 1: unexpected end of data; {QUOTED}"),
    ("a.csv", 'text,label\n"three,2\n"four",5\n', f", row 0: ',' expected after '\"'; {QUOTED}"),
    ("a.csv", "text,label,text\none,1,two\n", ", row 0: two columns have the same name"),
    ("a.jsonl", '{"text": "a", "text": "b"}', ", row 0: an object has a key twice, of text"),
    ("a.csv", "text,label\n", ": has no rows"),
    ("a.csv", "", ": has no rows"),
    ("a.csv", "text,label\ncafé,1\n".encode("latin-1"), ", after 0 rows: 'utf-8' codec can't decode byte 0xe9"),
    ("a.json", "[]", ": has no rows"),
    ("a.json", '[{"text": "one",\n"label": ', ", row 0: Expecting value: line 2 column 10"),
    ("a.json", '{"text": ["a"], "label": ["x", "y"]}', ", row 0: 'text' holds ['a'], not text"),
    ("a.json", '{"data": [{"text": "a"}]}', ": no column 'text' for data.text_column; it has data"),
    ("a.json", '[["a"]]', ', row 0: expected an object such as {"text": "..."}, got ["a"]'),
    ("a.jsonl", '{"text": "one"} {"text": "two"}\n', ", row 0: Extra data: line 1 column"),
    ("a.jsonl", '{"text": "one"}\n{"text"', ", row 1: Expecting ':' delimiter"),
    ("a.jsonl", '{\n"text": "one"}', ", row 0: Expecting property name"),
    ("a.jsonl", "null\n", ', row 0: expected an object such as {"text": "..."}, got null'),
    ("a.jsonl", '{"text": "a", "label": ' + "[" * 100_000, ", row 0: "),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5}', ", row 1: 'text' holds 5, not text"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": "1"}', ": column 'label' holds labels of several kinds"),
    ("a.parquet", "PAR1, but no more", ": cannot be read as parquet"),
    ("a.jsonl.gz", "none", ", row 0: Not a gzipped file"),
    ("a.csv.gz", gzip.compress(TABLE.encode() * 9, mtime=0)[:-12], ", row "),
    ("a.csv.bz2", "none", ", row 0: Invalid data stream"),
    ("a.csv.xz", "none", ", row 0: Compressed file ended"),
    *((name, "any", ": expected a name that ends in .csv, .tsv, .json,") for name in ("a.xls", "a.csv.zst", "plain")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_cannot_be_read_is_one_message(
    tmp_path: Path, logged: list[str], name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)
    assert logged == []


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_an_empty_line_is_an_empty_cell_where_there_is_one_column(
    tmp_path: Path, ending: str
) -> None:
    path = write(tmp_path / "a.csv", ending.join(["text", "warm film", "", "cold plot", ""]))
    assert [row["text"] for row in read_rows(str(path))] == ["warm film", "", "cold plot"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        *((name, "the current directory is ") for name in ("x.xlsx", "a.csv.gz", "d/a.ndjson", "a.CSV")),
        *((name, "several files go into a directory; download what") for name in ("d/*.csv", "[a.csv,b.csv]", "https://a.b/c.csv")),
        ("~/none.csv", "got '/"),
    ],
)  # fmt: skip
def test_a_file_that_is_missing_is_not_looked_for_on_the_hub(path: str, message: str) -> None:
    with pytest.raises(
        ConfigError, match=r"data\.path: expected a file or directory that"
    ) as found:
        check(TrainConfig(data=DataConfig(path=path)))
    assert message in str(found.value)


def test_a_sheet_and_the_encoding_of_japanese_excel_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="; save the sheet as csv in UTF-8"):
        load(write(tmp_path / "a.xls", "PK"))
    path = write(tmp_path / "a.csv", "text,label\n\u2460\u65e5\u672c,x\n".encode("cp932"))
    with pytest.raises(DataError, match=r"data\.encoding=cp932 or cp1252"):
        load(path)
    assert load(path, encoding="cp932")["train"] == labelled("x", text="\u2460\u65e5\u672c")


def test_lines_are_texts_to_predict_and_nothing_to_train_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "first\nsecond, with a comma\r\n")
    rows = [{"text": "first"}, {"text": "second, with a comma"}]
    for name in ("a.txt", "plain"):
        assert list(read_rows(str(path.rename(tmp_path / name)))) == rows
        path = tmp_path / name
    with pytest.raises(DataError, match=r"a\.log: expected a name that ends in"):
        next(read_rows(str(tmp_path / "a.log")))
    with pytest.raises(DataError, match=r"no column 'label' for data\.label_column; it has text"):
        load(path.rename(tmp_path / "a.txt"))


def test_a_column_without_a_name_has_one_and_a_missing_text_is_an_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,,label,\na,1,x,2\n")
    row = {"text": "a", "column_2": "1", "label": "x", "column_4": "2"}
    assert list(read_rows(str(path))) == [row]
    values = [None, float("nan"), "", "\ud800 a", 3]
    assert list(map(as_text, values)) == ["", "", "", "\ufffd a", None]


def test_a_file_for_each_split_may_be_of_another_format(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", TABLE)
    test = write(tmp_path / "b.jsonl", json.dumps(AB[0]))
    settings = {"train_split": "learn", "test_split": "exam", "test_path": str(test)}
    assert load(train, **settings) == {"learn": AB, "exam": AB[:1]}


def test_a_folder_in_hub_layout_has_its_splits_by_name_or_by_its_card(tmp_path: Path) -> None:
    files = ""
    for split in ("train", "test"):
        write(tmp_path / "named" / f"{split}.csv", f"text,label\n{split},007\n")
        write(
            tmp_path / "carded/short" / f"{split}-0.parquet", columns(text=[split], label=["007"])
        )
        files += f"\n  - {{split: {split}, path: short/{split}-*}}"
    card = f"---\nconfigs:\n- config_name: short\n  data_files:{files}\n---\n"
    write(tmp_path / "carded" / "README.md", card)
    wanted = {split: labelled("007", text=split) for split in ("train", "test")}
    assert load(tmp_path / "named") == wanted
    assert load(tmp_path / "carded", name="short") == wanted
    write(tmp_path / "saved" / "state.json", "{}")
    with pytest.raises(DataError, match="save_to_disk"):
        load(tmp_path / "saved")


def test_a_card_names_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "yours.csv", TABLE)
    write(tmp_path / "theirs/theirs.csv", TABLE)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    assert load(tmp_path / "link") == {"train": AB}
    card = "---\nconfigs:\n- {config_name: default, data_files: %s}\n---\n"
    for name in ("../yours.csv", tmp_path / "yours.csv"):
        write(tmp_path / "theirs/README.md", card % name)
        with pytest.raises(DataError, match=r"its card names .*yours\.csv, outside of the folder"):
            load(tmp_path / "theirs")


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
def test_a_card_asks_no_address_and_is_no_larger_than_it_says(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "theirs.csv", TABLE)
    asked: list[object] = []
    monkeypatch.setattr("datasets.load_dataset_builder", lambda *given: asked.append(given))
    aliases = "".join(f"a{each + 1}: &a{each + 1} [{f'*a{each}, ' * 10}]\n" for each in range(9))
    cases = {
        "configs: [{data_files: 'http://127.0.0.1/a.csv'}]": "names http://127.0.0.1/a.csv, outside",
        "configs: [{data_files: [{path: 'zip://a::b.zip'}]}]": "names zip://a::b.zip, outside",
        "configs: [{data_dir: ../..}]": r"names \.\./\.\., outside of the folder",
        f"a0: &a0 [x]\n{aliases}configs: *a9": "its aliases stand for more than 100,000 values",
        "a: &a [*a]": "its aliases stand for more than 100,000 values",
        "a: " + "[" * 100_000: "maximum recursion depth exceeded",
        "a: !!python/name:os.system": "could not determine a constructor",
    }
    for content, message in cases.items():
        write(tmp_path / name, content if name.endswith("yaml") else f" ---\n{content}\n---\n")
        with pytest.raises(DataError, match=message):
            load(tmp_path)
    assert not asked


def test_a_card_says_how_cells_are_separated_and_what_classes_are_called(tmp_path: Path) -> None:
    write(tmp_path / "train.csv.gz", gzip.compress(b"text;label\none, two;1\n"))
    names = "dtype: {class_label: {names: {'0': bad, '1': good}}}"
    features = f"dataset_info:\n  features:\n  - {{name: text, dtype: string}}\n  - {{name: label, {names}}}\n"
    files = "configs:\n- {config_name: default, sep: ';', data_files: train.csv.gz}\n"
    write(tmp_path / "README.md", f"---\n{files}{features}---\n")
    loaded = load_source(DataConfig(path=str(tmp_path)))["train"]
    assert loaded.features["label"].names == ["bad", "good"]
    assert list(loaded) == [{"text": "one, two", "label": 1}]


PLACES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "an empty folder": os.mkdir,
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_rejected_at_once(tmp_path: Path, place: str) -> None:
    PLACES[place](tmp_path / "train.csv")
    with pytest.raises(DataError, match=r"^[^\n]*train\.csv: [^\n]*$"):
        load(tmp_path / "train.csv")


def test_texts_are_read_from_a_file_in_the_cache_whose_content_stays(tmp_path: Path) -> None:
    loaded = []
    for text in ("before", "after", "before"):
        path = write(tmp_path / "a.csv", f"text,label\n{text},x\n" * 1)
        loaded.append(load_source(DataConfig(path=str(path), cache_dir=str(tmp_path)))["train"])
    assert [rows["text"][:] for rows in loaded] == [["before"], ["after"], ["before"]]
    write(tmp_path / "a.csv", "text,label\nfine,x\ntoo,many,cells\n")
    with pytest.raises(DataError, match="row 1"):
        load_source(DataConfig(path=str(tmp_path / "a.csv"), cache_dir=str(tmp_path)))
    assert len(list((tmp_path / "rows").iterdir())) == 2  # what was half-written is gone


def test_a_hub_id_is_loaded_by_name_and_revision_and_what_the_hub_lacks_is_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {"train": [{"text": "a", "label": 1}]}

    def load_dataset(path: str, name: str | None, revision: str | None) -> dict[str, Any]:
        if revision == "2.0":
            missing = FileNotFoundError("Repository Not Found\nfor url: ...")
            raise DatasetNotFoundError("Revision '2.0' doesn't exist") from missing
        assert (path, name, revision) == ("some/name", "news", "1.0")
        return rows

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    asked = DataConfig(path="some/name", name="news", revision="1.0")
    assert load_source(asked) is rows
    words = r"^data\.path=some/name: Revision '2\.0' doesn't exist; Repository Not Found$"
    with pytest.raises(DataError, match=words):
        load_source(replace(asked, revision="2.0"))


def test_parquet_that_has_changed_is_read_as_it_is_whatever_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    found = []
    for texts in (["one", "two"], ["six", "ten"]):
        parquet.write_table(pa.table({"text": texts, "label": ["x", "y"]}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        config = DataConfig(path=str(path), cache_dir=str(tmp_path / "cache"))
        found.append([*load_source(config)["train"]["text"]])
    assert found == [["one", "two"], ["six", "ten"]]


def test_bytes_are_no_text_of_csv_or_json(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["a"], "raw": [b"\xff"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row 0: column 'raw': expected text .* got binary; drop"):
        [*read_rows(str(tmp_path / "a.parquet"))]
