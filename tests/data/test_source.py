"""Every form of source gives the same rows, and what cannot be read is told in one message that names the file."""

import contextlib
import csv
import gzip
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset

from headscope.config import DataConfig
from headscope.data.columns import PLACE
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
    return {split: [{**row} for row in without_places(rows)] for split, rows in loaded.items()}


def without_places(rows: Dataset) -> Dataset:
    return rows.remove_columns([PLACE] if PLACE in rows.column_names else [])


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    assert load(write_rows(tmp_path / f"rows.{ending}", ROWS)) == {"train": ROWS}


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path, ending: str) -> None:
    path = write_rows(tmp_path / f"rows.{ending}", ROWS)
    write_text(path, BYTE_ORDER_MARK + path.read_text(encoding="utf-8"))
    assert load(path)["train"] == ROWS


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_words_such_as_none_are_words_and_only_an_empty_field_is_null(
    tmp_path: Path, ending: str
) -> None:
    words = [
        {"text": word, "label": label}
        for word, label in [("None", "NA"), ("null", "n/a"), ("nan", "x")]
    ]
    path = write_rows(tmp_path / f"rows.{ending}", [*words, {"text": "", "label": "x"}])
    assert load(path)["train"] == [*words, {"text": None, "label": "x"}]


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
        DataError, match=rf"lines\.txt, line 3: takes lines of one '__label__name'.*{line}"
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
    assert load(tmp_path) == {
        "train": [{"text": "neg/a", "label": "neg"}, {"text": "pos/a", "label": "pos"}]
    }


def test_folders_for_classes_may_lie_below_folders_for_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            write_text(tmp_path / split / label / "0_1.txt", f"{split} {label}")
        write_text(
            tmp_path / split / "urls.txt", "stands beside the classes, as in the IMDB archive"
        )
    assert load(tmp_path) == {
        split: [{"text": f"{split} {label}", "label": label} for label in ("neg", "pos")]
        for split in ("train", "test")
    }


def test_a_folder_in_hub_layout_has_its_splits_by_name_or_by_its_card(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_rows(tmp_path / "named" / f"{split}.csv", [{"text": split, "label": 1}])
        write_rows(
            tmp_path / "carded" / "short" / f"{split}-0.parquet",
            [{"text": f"short {split}", "label": 2}],
        )
    files = "".join(
        f"\n  - {{split: {split}, path: short/{split}-*}}" for split in ("train", "test")
    )
    write_text(
        tmp_path / "carded" / "README.md",
        f"---\nconfigs:\n- config_name: short\n  data_files:{files}\n---\n",
    )
    assert load(tmp_path / "named") == {
        split: [{"text": split, "label": 1}] for split in ("train", "test")
    }
    carded = load(tmp_path / "carded", name="short")
    assert carded == {
        split: [{"text": f"short {split}", "label": 2}] for split in ("train", "test")
    }


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-8"),
        ("cp1252", "cp1252"),
        ("shift_jis", "Shift-JIS"),
        ("utf-16-le",) * 2,
    ],
)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "txt"])
def test_a_file_may_be_in_any_encoding_and_utf_16_says_so_itself(
    tmp_path: Path, encoding: str, name: str, ending: str
) -> None:
    rows = [
        {"text": {"cp1252": "café"}.get(encoding, "日本語ソ表"), "label": "x"},
        {"text": "two", "label": "y"},
    ]
    path = (
        write_rows(tmp_path / "class" / f"train.{ending}", rows)
        if ending != "txt"
        else tmp_path / "train.txt"
    )
    text = (
        path.read_text("utf-8")
        if ending != "txt"
        else "".join(f"__label__{r['label']} {r['text']}\n" for r in rows)
    )
    path.write_bytes(text.encode(encoding))
    for place in {path, path if ending == "txt" else path.parent}:
        assert load(place, encoding=name)["train"] == rows


@pytest.mark.parametrize(("separator", "given"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_cells_may_be_separated_by_any_sign(tmp_path: Path, separator: str, given: str) -> None:
    path = write_text(
        tmp_path / "train.csv", f'text{separator}label\n"one{separator}two, three"{separator}x\n'
    )
    for place in (path, tmp_path):
        assert load(place, separator=given) == {
            "train": [{"text": f"one{separator}two, three", "label": "x"}]
        }


def test_a_card_says_how_cells_are_separated_and_what_classes_are_called(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write("text;label\none, two;1\n")
    names = "dtype: {class_label: {names: {'0': bad, '1': good}}}"
    features = f"dataset_info:\n  features:\n  - {{name: text, dtype: string}}\n  - {{name: label, {names}}}\n"
    files = "configs:\n- {config_name: default, sep: ';', data_files: train.csv.gz}\n"
    write_text(tmp_path / "README.md", f"---\n{files}{features}---\n")
    loaded = load_source(DataConfig(path=str(tmp_path)))["train"]
    assert loaded.features["label"].names == ["bad", "good"]
    assert list(without_places(loaded)) == [{"text": "one, two", "label": 1}]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["10", "9", ""], [10, 9, None]),
        (["3.0", "1.0", ""], [3.0, 1.0, None]),
        (["007", "1"], ["007", "1"]),
        (["1", "1.0"], ["1", "1.0"]),
        (["01.0", "2.0"], ["01.0", "2.0"]),
        (["1.10", "2.00"], [1.1, 2.0]),
        (["1", "True"], ["1", "True"]),
        (["9" * 30, "1"], ["9" * 30, "1"]),
    ],
)
def test_cells_with_numbers_alone_are_numbers(
    tmp_path: Path, cells: list[str], labels: list[Any]
) -> None:
    rows = [{"text": "a", "label": cell} for cell in cells]
    assert [
        row["label"] for row in load(write_rows(tmp_path / "train.csv", rows))["train"]
    ] == labels


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([1, "1", None], ["1", "1", None]),
        ([True, 2.0, float("nan")], [1, 2, None]),
        ([0.5, 1], [0.5, 1.0]),
        ([10**30, 1], [str(10**30), "1"]),
        ([["a", 1], [], None], [["a", "1"], [], None]),
        ([[1, 2.0], 3], [[1, 2], [3]]),
    ],
)
def test_json_labels_of_several_kinds_become_one(
    tmp_path: Path, given: list[Any], labels: list[Any]
) -> None:
    rows = [{"text": "a", "label": label, f"key {row}": {}} for row, label in enumerate(given)]
    assert [
        row["label"] for row in load(write_rows(tmp_path / "train.jsonl", rows))["train"]
    ] == labels


@pytest.mark.parametrize(
    "name", ["train.csv", "train.parquet", "train.csv.gz", "good/1.txt", "file"]
)
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    if name != "good/1.txt":
        write_rows(tmp_path / "data" / "test.parquet", ROWS)
    with (
        contextlib.chdir(path.parent),
        socket.socket(socket.AF_UNIX) as opened,
    ):  # whose path has at most 108 bytes
        if kind == "a socket":
            opened.bind(path.name)
        elif kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
    places = [
        *([path] if kind != "a folder" else []),
        *([tmp_path / "data"] if name != "file" else []),
    ]
    for place in places:
        with pytest.raises(DataError, match=rf"{path}: is {kind}, takes a file"):
            load(place)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", b"{}", "was written by save_to_disk; write train.parquet"),
        (
            "train.jsonl.zst",
            b"any",
            "train.jsonl.zst: cannot be read; takes .csv, .tsv, .json, .jsonl",
        ),
        ("train.jsonl.gz", b"none", "train.jsonl.gz: cannot be unpacked: Not a gzipped file"),
        (
            "train.csv.gz",
            gzip.compress(b"text,label\none,1\n" * 99, mtime=0)[:-12],
            "train.csv.gz: cannot be unpacked",
        ),
        (
            "train.jsonl.gz",
            gzip.compress(b"null\n" * 50, mtime=0),
            "train.jsonl.gz, line 1: takes an object",
        ),
    ],
)
def test_a_folder_of_other_files_is_refused_with_what_to_do(
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


def assert_refused_once(logged: list[str], path: Path, *said: str) -> None:
    with pytest.raises(DataError) as caught:
        load(path)
    for part in said:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert logged == []


@pytest.mark.parametrize(
    ("ending", "in_folder"),
    [
        ("csv", False),
        ("json", False),
        ("jsonl", False),
        ("txt", False),
        ("tsv", True),
        ("txt", True),
    ],
)
def test_a_file_in_another_encoding_is_refused_by_name_and_line(
    tmp_path: Path, logged: list[str], ending: str, in_folder: bool
) -> None:
    rows = [{"text": text, "label": "x"} for text in ("ascii", "café au lait")]
    path = tmp_path / "data" / f"train.{ending}"
    if ending == "txt":
        write_text(path, "".join(f"__label__x {row['text']}\n" for row in rows))
    else:
        write_rows(path, rows)
    if ending == "json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=0), encoding="utf-8")
    line = next(
        number for number, line in enumerate(path.read_text("utf-8").split("\n"), 1) if "é" in line
    )
    path.write_bytes(path.read_bytes().decode().encode("latin-1"))
    if in_folder and ending == "txt":
        path.parent.rename(tmp_path / "class")
        path = tmp_path / "class" / path.name
        assert_refused_once(logged, tmp_path, f"{path}, line {line}: byte 0xe9 is not UTF-8")
    else:
        path = path.parent if in_folder else path
        assert_refused_once(
            logged, path, f"line {line}: byte 0xe9 is not UTF-8", "data.encoding=cp1252"
        )


SEPARATED = "has 2 cells, the first line has 1; put quotes around a text with a comma in it; its first line has"


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "train.csv",
            "text,label\none,1\n\ntwo,2,3\n",
            ", line 4: has 3 cells, the first line has 2; put quotes",
        ),
        (
            "train.csv",
            "text;label\n1;1\na, b;2\n",
            f", line 3: {SEPARATED} semicolons and no comma: set \"data.separator=';'\"",
        ),
        (
            "train.csv",
            "text\tlabel\none, two\t1\n",
            f", line 2: {SEPARATED} tabs and no comma: set \"data.separator='\\t'\"",
        ),
        (
            "train.csv",
            'text,label\n"one\ntwo",1\n"three,2\n',
            ", line 4: is not csv: a quote that begins there is not",
        ),
        (
            "train.csv",
            "text,label,text\none,1,two\n",
            ", line 1: 2 columns have the name 'text'; rename them",
        ),
        (
            "train.json",
            '[{"text": "one",\n"label": ',
            ", line 2: is not JSON: Expecting value (character 10)",
        ),
        (
            "train.json",
            '{"text": [["one"], ["two"]]}',
            ", line 1: column 'text' holds [['one'], ['two']], not text",
        ),
        ("train.json", "[" * 100_000, ", line 1: is nested too deep"),
        (
            "train.jsonl",
            '{"text": "one", "label": 1}\n{"text"',
            ", line 2: is not JSON: Expecting ':' delimiter",
        ),
        (
            "train.jsonl",
            "null\n" * 50,
            ', line 1: takes an object such as {"text": "..."}, got null',
        ),
        ("train.jsonl", '{"text": "a", "label": ' + "[" * 100_000, ", line 1: is nested too deep"),
        (
            "train.jsonl",
            '{"text": "a", "label": ' + "9" * 5000,
            ", line 1: is not JSON that can be read: Exceeds",
        ),
        ("train.jsonl", '{"text": "\\ud83d", "label": 1}', ", line 1: holds half a character"),
        (
            "train.jsonl",
            '{"text": "a", "label": 1}\n{"text": 5, "label": 1}',
            ", line 2: column 'text' holds 5, not text",
        ),
        (
            "train.jsonl",
            '{"text": "a", "label": {"b": 1}}',
            ", line 1: column 'label' holds an object; a label is",
        ),
        (
            "train.jsonl",
            '{"text": "a", "label": [[1]]}',
            ", line 1: column 'label' holds a list in a list",
        ),
        ("train.parquet", "PAR1, but no more", ": cannot be read as parquet"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_reason(
    tmp_path: Path, logged: list[str], name: str, content: str, reason: str, in_folder: bool
) -> None:
    write_rows(tmp_path / f"test{Path(name).suffix}", ROWS)
    path = write_text(tmp_path / name, content)
    assert_refused_once(logged, tmp_path if in_folder else path, f"{path}{reason}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "", "is empty"),
        ("rows.txt", "", "is empty"),
        ("rows.jsonl", "", "is empty"),
        ("rows.csv", "text,label\n", ": has no rows"),
        ("rows.json", "[]", ": has no rows"),
        (
            "rows.xml",
            "<rows/>",
            "the ending '.xml' is not known; takes .csv, .tsv, .json, .jsonl, .parquet, .txt",
        ),
    ],
)
def test_a_file_without_rows_or_of_unknown_kind_is_refused(
    tmp_path: Path, logged: list[str], name: str, content: str, message: str
) -> None:
    path = write_text(tmp_path / name, content)
    assert_refused_once(logged, path, f"{path}: ", message)


# prints what each of several configurations gives: its rows, or the message of the DataError
LOAD = """
import json, sys
from headscope.config import DataConfig
from headscope.data.columns import PLACE
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


@pytest.mark.parametrize("at_once", [3, 1000])
def test_lines_and_folders_of_texts_are_read_from_a_file_in_the_cache_and_stay_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("headscope.data.source.ROWS_AT_ONCE", at_once)
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
