"""Every form of source gives the same rows, and what cannot be read is told in one message that names the file."""

import csv
import gzip
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from headscope.config import DataConfig
from headscope.data.rows import read_rows
from headscope.data.source import load_source
from headscope.errors import DataError
from hub_server import HubServer

ROWS = [
    {"text": "a plain text", "label": "x"},
    {"text": 'with "quotes", a comma and a\ttab', "label": "y"},
    {"text": "two\nlines", "label": "x"},
    {"text": "日本語、空白なし。", "label": "y"},
]
ENDINGS = ("csv", "tsv", "json", "jsonl", "parquet")
BYTE_ORDER_MARK = "\ufeff"


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ","
            )
            writer.writeheader()
            writer.writerows(rows)
    return path


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    loaded = load_source(DataConfig(path=str(path), **settings))
    return {split: list(rows) for split, rows in loaded.items()}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    assert load(write_rows(tmp_path / f"rows.{ending}", ROWS)) == {"train": ROWS}


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path, ending: str) -> None:
    path = write_rows(tmp_path / f"rows.{ending}", ROWS)
    write_text(path, BYTE_ORDER_MARK + path.read_text(encoding="utf-8"))
    assert load(path)["train"] == ROWS


def test_words_such_as_none_are_words(tmp_path: Path) -> None:
    cells = [("None", "NA"), ("null", "n/a"), ("nan", "x"), ("", "x")]
    words = [{"text": word, "label": label} for word, label in cells]
    assert load(write_rows(tmp_path / "rows.csv", words))["train"] == words


def test_lines_as_fasttext_reads_them_give_text_and_label(tmp_path: Path) -> None:
    separators = "a\u2028b\x85c\x0cd"  # line ends to str.splitlines, but not to a text file
    lines = [
        "__label__x  one  text ",
        "",
        f"__label__two-words\t{separators}",
        "__label__x",
        "__label__y 日本語",
    ]
    path = write_text(tmp_path / "lines.txt", BYTE_ORDER_MARK + "\r\n".join(lines) + "\r\n")
    rows = [("one  text", "x"), (separators, "two-words"), ("", "x"), ("日本語", "y")]
    assert load(path, text_column="review", label_column="stars") == {
        "train": [{"review": text, "stars": label} for text, label in rows]
    }


@pytest.mark.parametrize("line", ["no label here", "__label__x __label__y two labels"])
def test_a_line_without_one_label_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    path = write_text(tmp_path / "lines.txt", f"__label__x fine\n\n{line}\n")
    with pytest.raises(
        DataError, match=rf"lines\.txt, line 3: expected one '__label__name'.*{line}"
    ):
        load(path)


def test_a_file_for_each_split_may_be_of_another_format(tmp_path: Path) -> None:
    train, validation, test = (
        write_rows(tmp_path / f"{i}.{ENDINGS[i]}", ROWS[i:]) for i in range(3)
    )
    settings = {"train_split": "learn", "test_split": "exam"}
    splits = load(train, validation_path=str(validation), test_path=str(test), **settings)
    assert splits == {"learn": ROWS, "validation": ROWS[1:], "exam": ROWS[2:]}


def test_a_folder_for_each_class_is_one_split(tmp_path: Path) -> None:
    write_text(tmp_path / "texts" / "good" / "b.txt", "fine\nfilm\n")
    write_text(tmp_path / "texts" / "good" / "a.txt", BYTE_ORDER_MARK + "nice")
    write_text(tmp_path / "texts" / "bad" / "a.txt", "dull")
    rows = [("dull", "bad"), ("nice", "good"), ("fine\nfilm\n", "good")]
    for columns in [("text", "label"), ("review", "stars")]:
        settings = {"text_column": columns[0], "label_column": columns[1], "train_split": "all"}
        splits = load(tmp_path / "texts", **settings)
        assert splits["all"] == [
            dict(zip(columns, (text, label), strict=True)) for text, label in rows
        ]


def test_hidden_folders_are_no_classes_and_no_splits(tmp_path: Path) -> None:
    for place in ("pos/a", "neg/a", ".cache/a", "pos/.ipynb_checkpoints/a-checkpoint", "_old/a"):
        write_text(tmp_path / f"{place}.txt", place)
    rows = [{"text": f"{label}/a", "label": label} for label in ("neg", "pos")]
    assert load(tmp_path) == {"train": rows}


def test_folders_for_classes_may_lie_below_folders_for_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            write_text(tmp_path / split / label / "0_1.txt", f"{split} {label}")
        write_text(tmp_path / split / "urls.txt", "beside the classes, as in the IMDB archive")
    assert load(tmp_path) == {
        split: [{"text": f"{split} {label}", "label": label} for label in ("neg", "pos")]
        for split in ("train", "test")
    }


def test_a_folder_in_hub_layout_has_its_splits_by_name_or_by_its_card(tmp_path: Path) -> None:
    files = ""
    for split in ("train", "test"):
        row = {"text": split, "label": 1}
        write_rows(tmp_path / "named" / f"{split}.csv", [row])
        write_rows(tmp_path / "carded" / "short" / f"{split}-0.parquet", [row])
        files += f"\n  - {{split: {split}, path: short/{split}-*}}"
    card = f"---\nconfigs:\n- config_name: short\n  data_files:{files}\n---\n"
    write_text(tmp_path / "carded" / "README.md", card)
    wanted = {split: [{"text": split, "label": 1}] for split in ("train", "test")}
    assert load(tmp_path / "named") == wanted
    assert load(tmp_path / "carded", name="short") == wanted


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-16", "utf-8"),
        ("cp1252", "cp1252"),
        ("shift_jis", "Shift-JIS"),
        ("utf-16-le", "utf-16-le"),
    ],
)
def test_a_file_may_be_in_any_encoding_and_utf_16_says_so_itself(
    tmp_path: Path, encoding: str, name: str
) -> None:
    text = "café" if encoding == "cp1252" else "日本語ソ表"
    rows = [{"text": text, "label": "x"}, {"text": "two", "label": "y"}]
    table = tmp_path / "class" / "train.csv"
    lines = write_text(tmp_path / "train.txt", f"__label__x {text}\n__label__y two\n")
    for path in (write_rows(table, rows), lines):
        path.write_bytes(path.read_text("utf-8").encode(encoding))
    for place in (table, table.parent, lines):
        assert load(place, encoding=name)["train"] == rows


@pytest.mark.parametrize(("separator", "given"), [(";", ";"), ("\t", "\\t")])
def test_any_column_delimiter(tmp_path: Path, separator: str, given: str) -> None:
    text = f'text{separator}label\n"one{separator}two, three"{separator}x\n'
    path = write_text(tmp_path / "train.csv", text)
    rows = [{"text": f"one{separator}two, three", "label": "x"}]
    for place in (path, tmp_path):
        assert load(place, separator=given) == {"train": rows}


def test_a_card_says_how_cells_are_separated_and_what_classes_are_called(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write("text;label\none, two;1\n")
    names = "dtype: {class_label: {names: {'0': bad, '1': good}}}"
    features = f"dataset_info:\n  features:\n  - {{name: text, dtype: string}}\n  - {{name: label, {names}}}\n"
    files = "configs:\n- {config_name: default, sep: ';', data_files: train.csv.gz}\n"
    write_text(tmp_path / "README.md", f"---\n{files}{features}---\n")
    loaded = load_source(DataConfig(path=str(tmp_path)))["train"]
    assert loaded.features["label"].names == ["bad", "good"]
    assert list(loaded) == [{"text": "one, two", "label": 1}]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["10", "9", ""], [10, 9, None]),
        (["007", "1"], ["007", "1"]),
        (["3.0", "1.0"], ["3.0", "1.0"]),
        (["1", "True"], ["1", "True"]),
        (["9" * 30, "1"], ["9" * 30, "1"]),
    ],
)
def test_cells_are_strings_unless_all_are_whole_numbers(
    tmp_path: Path, cells: list[str], labels: list[Any]
) -> None:
    path = write_rows(tmp_path / "train.csv", [{"text": "a", "label": cell} for cell in cells])
    assert [row["label"] for row in load(path)["train"]] == labels


def test_json_keeps_the_kind_of_a_label_and_other_columns_may_hold_anything(tmp_path: Path) -> None:
    for labels in ([1, None], ["10", "9"], [True, False], ["2024-01-02"], [["a", "b"], [], None]):
        rows = [{"text": "a", "label": label, f"key {row}": {}} for row, label in enumerate(labels)]
        path = write_rows(tmp_path / "train.jsonl", rows)
        assert [row["label"] for row in load(path)["train"]] == labels


@pytest.mark.parametrize("name", ["train.csv", "train.parquet"])
def test_a_pipe_is_rejected_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name}: is not a file"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", b"{}", "save_to_disk"),
        ("train.jsonl.zst", b"any", "train.jsonl.zst: expected a name that ends in"),
        ("train.jsonl.gz", b"none", "train.jsonl.gz: cannot be unpacked: Not a gzipped file"),
        (
            "train.csv.gz",
            gzip.compress(b"text,label\none,1\n" * 99, mtime=0)[:-12],
            "csv.gz: cannot be unpacked",
        ),
    ],
)
def test_a_folder_of_other_files_is_rejected_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What `datasets` logs, which would reach the user's screen."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("datasets").addHandler(handler)
    yield messages
    logging.getLogger("datasets").removeHandler(handler)


def assert_rejected_once(logged: list[str], path: Path, *parts: str) -> None:
    with pytest.raises(DataError) as caught:
        load(path)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert logged == []


@pytest.mark.parametrize("ending", ["csv", "json", "class/1.txt"])
def test_a_file_in_another_encoding_is_rejected_by_name(
    tmp_path: Path, logged: list[str], ending: str
) -> None:
    rows = [{"text": text, "label": "x"} for text in ("ascii", "café au lait")]
    path = tmp_path / f"train.{ending}"
    if "txt" in ending:
        write_text(path, "".join(f"__label__x {row['text']}\n" for row in rows))
    else:
        write_rows(path, rows)
    path.write_bytes(json.dumps(rows, ensure_ascii=False).encode("latin-1") if ending == "json"
                     else path.read_text("utf-8").encode("latin-1"))  # fmt: skip
    expected = (
        f"{path}, after 0 rows: 'utf-8' codec can't decode byte 0xe9",
        "data.encoding=cp1252",
    )
    assert_rejected_once(logged, path.parent.parent if "class" in ending else path, *expected)


SEPARATED = "has more cells than the first line, which has 1; put quotes around a text with a ',' in it; its"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", "text,label\none,1\n\ntwo,2,3\n", ", row 1: has more cells than the first"),
        (
            "train.csv",
            "text;label\n1;1\na, b;2\n",
            f", row 1: {SEPARATED} first line has semicolons and no comma: set \"data.separator=';'\"",
        ),
        ("train.csv", 'text,label\n"one\ntwo",1\n"three,2\n', ", row 1: unexpected end of data"),
        ("train.csv", "text,label,text\none,1,two\n", ", row 0: two columns have the same name"),
        ("train.csv", "text,label\n", ": has no rows"),
        ("train.json", "[]", ": has no rows"),
        ("train.json", '[{"text": "one",\n"label": ', ", row 0: Expecting value: line 2 column 10"),
        ("train.json", '{"text": [["one"]]}', ", row 0: 'text' holds [['one']], not text"),
        ("train.jsonl", '{"text": "one"}\n{"text"', ", row 1: Expecting ':' delimiter"),
        ("train.jsonl", "null\n", ', row 0: expected an object such as {"text": "..."}, got null'),
        ("train.jsonl", '{"text": "a", "label": ' + "[" * 100_000, ", row 0: "),
        ("train.jsonl", '{"text": "\\ud83d", "label": 1}', ", row 0: 'utf-8' codec can't encode"),
        (
            "train.jsonl",
            '{"text": "a", "label": 1}\n{"text": 5}',
            ", row 1: 'text' holds 5, not text",
        ),
        (
            "train.jsonl",
            '{"text": "a", "label": 1}\n{"text": "b", "label": "1"}',
            ": column 'label' holds labels of several kinds",
        ),
        ("train.parquet", "PAR1, but no more", ": cannot be read as parquet"),
        ("rows.csv", "", ": has no rows"),
        ("rows.xml", "<a/>", ": expected a name"),
    ],
)
def test_a_broken_file_is_rejected_by_name_and_row(
    tmp_path: Path, logged: list[str], name: str, content: str, message: str
) -> None:
    path = write_text(tmp_path / name, content)
    assert_rejected_once(logged, path, f"{path}{message}")
    if name == "train.parquet":
        assert_rejected_once(logged, tmp_path, f"{path}{message}")


# prints what each of several configurations gives: its rows, or the message of the DataError
LOAD = """
import json, sys
from headscope.config import DataConfig
from headscope.data.source import load_source
from headscope.errors import DataError

def answer(settings):
    try:
        return {split: list(rows) for split, rows in load_source(DataConfig(**settings)).items()}
    except DataError as error:
        return str(error)

print(json.dumps([answer(settings) for settings in json.loads(sys.argv[1])]))
"""


@pytest.mark.slow
def test_a_hub_id_is_loaded_by_name_and_revision(tmp_path: Path) -> None:
    for mark in ("old", "new"):
        for name, split in (("reviews", "train"), ("reviews", "test"), ("news", "train")):
            row = {"text": f"{mark} {name} {split}", "label": 1}
            write_rows(tmp_path / mark / name / f"{split}-0.parquet", [row])
        configs = "".join(
            f"- {{config_name: {name}, data_dir: {name}}}\n" for name in ("reviews", "news")
        )
        write_text(tmp_path / mark / "README.md", f"---\nconfigs:\n{configs}---\n")
    asked: list[dict[str, str]] = [
        {"name": "reviews"},
        {"name": "reviews", "revision": "1.0"},
        {"name": "news"},
        {"name": "news", "revision": "2.0"},
        {"path": "an/other"},
    ]
    with HubServer({"some/name": {"main": tmp_path / "new", "1.0": tmp_path / "old"}}) as hub:
        command = [
            sys.executable,
            "-c",
            LOAD,
            json.dumps([{"path": "some/name", **settings} for settings in asked]),
        ]
        environment = hub.environment(tmp_path / "home")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        # A request to another host is seen here because the server is also the proxy: the viewer alone is asked.
        elsewhere = {path for _, path in hub.requests if not path.startswith("/")}
    assert elsewhere <= {
        f"http://datasets-server.127.0.0.1:{hub.server_port}/info?dataset={name}"
        for name in ("some/name", "an/other")
    }
    assert done.returncode == 0, done.stderr
    offline = environment | {"HF_HUB_OFFLINE": "1"}  # what was loaded once is there without the Hub
    again = subprocess.run([*command[:3], json.dumps([{"path": "some/name", "name": "news"}])], env=offline,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    assert json.loads(again.stdout) == json.loads(done.stdout)[2:3], again.stderr
    new, old, news, no_revision, unknown = json.loads(done.stdout)
    assert new == {
        split: [{"text": f"new reviews {split}", "label": 1}] for split in ("train", "test")
    }
    assert old == {
        split: [{"text": f"old reviews {split}", "label": 1}] for split in ("train", "test")
    }
    assert news == {"train": [{"text": "new news train", "label": 1}]}
    assert no_revision.startswith("data.path=some/name: Revision '2.0' doesn't exist")
    assert unknown.startswith("data.path=an/other: Dataset 'an/other' doesn't exist on the Hub")


def test_lines_and_folders_of_texts_are_read_from_a_file_in_the_cache_and_stay_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.data.source.ROWS_PER_BATCH", 3)
    rows = [(f"text {row}", "xy"[row % 2]) for row in range(7)]
    lines = write_text(
        tmp_path / "lines.txt", "".join(f"__label__{label} {text}\n" for text, label in rows)
    )
    for number, (text, label) in enumerate(rows):
        write_text(tmp_path / "classes" / label / f"{number}.txt", text)
    for path, wanted in (
        (lines, rows),
        (tmp_path / "classes", sorted(rows, key=lambda row: row[1])),
    ):
        loaded = load_source(DataConfig(path=str(path), cache_dir=str(tmp_path)))["train"]
        assert [(row["text"], row["label"]) for row in loaded] == wanted
        (file,) = {Path(file["filename"]) for file in loaded.cache_files}
        assert file.parent == tmp_path / "rows"
    assert len(list((tmp_path / "rows").iterdir())) == 2  # what was half-written is gone


def test_a_text_file_that_changes_is_read_anew_and_earlier_texts_stay_as_they_are(
    tmp_path: Path,
) -> None:
    path, settings = tmp_path / "lines.txt", {"cache_dir": str(tmp_path)}
    loaded = []
    for text in ("before", "after", "before"):
        write_text(path, f"__label__x {text}\n__label__y {text}\n")
        loaded.append(load_source(DataConfig(path=str(path), **settings))["train"])
    assert [rows["text"][:] for rows in loaded] == [["before"] * 2, ["after"] * 2, ["before"] * 2]
    write_text(path, "__label__x fine\nno label\n")
    with pytest.raises(DataError, match="line 2"):
        load_source(DataConfig(path=str(path), **settings))
    assert len(list((tmp_path / "rows").iterdir())) == 2


# --- one file of rows, or standard input ---


def rows_of(path: Path | str, form: str = "auto", **options: Any) -> list[dict[str, Any]]:
    return list(read_rows(str(path), form, **options))


def test_every_form_gives_its_rows(tmp_path: Path) -> None:
    lines = write_text(tmp_path / "a.txt", "first\nsecond, with a comma\n")
    assert rows_of(lines) == [{"text": "first"}, {"text": "second, with a comma"}]
    table = write_text(tmp_path / "A.CSV", '\ufefftext,id\n"one\ntwo, ""three""",1,,\n')
    assert rows_of(table) == [{"text": 'one\ntwo, "three"', "id": "1"}]
    objects = write_text(tmp_path / "a.jsonl", '{"text": "日本"}\n\n{"text": "x", "n": 3}\n')
    assert rows_of(objects) == [{"text": "日本"}, {"text": "x", "n": 3}]
    assert rows_of(table, "lines")[0] == {"text": "text,id"}


def test_what_has_come_on_standard_input_is_handed_on_before_more_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    to_come = ["\ufefffirst\nsécond\nthi".encode(), b"rd\n"]
    seen: list[int] = []

    def before_waiting() -> None:
        seen.append(len(found))
        if to_come:
            os.write(writing, to_come.pop(0))
        else:
            os.close(writing)

    found: list[dict[str, Any]] = []
    with os.fdopen(reading) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        found.extend(read_rows("-", before_waiting=before_waiting))
    assert [row["text"] for row in found] == ["first", "sécond", "third"]
    assert seen == [0, 2, 3]
