"""Files of texts that are broken, strange or hostile, to train on and to predict: read, or refused in one message."""

import gzip
import io
import json
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hard.forked import TRAIN, Case, Judge, Outcome, Server
from training_runs import Rows, reviews

ENDINGS = ("csv", "tsv", "json", "jsonl", "parquet", "txt")
QUICK = [word for word in TRAIN if "data.path" not in word and "tokens_per" not in word]
QUICK += ["data.tokens_per_batch=2048", "trainer.max_steps=1", "inspection.enabled=false"]


def written(rows: Rows, ending: str) -> bytes:
    """Return rows of text and label as a file of this kind."""
    if ending == "json":
        lines = [json.dumps(rows, ensure_ascii=False)]
    elif ending == "jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    elif ending == "parquet":
        return parquet(pa.table({name: [row.get(name) for row in rows] for name in rows[0]}))
    elif ending == "txt":
        lines = [f"__label__{row['label']} {row['text']}" for row in rows]
    else:
        mark = {"csv": ",", "tsv": "\t"}[ending]
        lines = [mark.join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows))]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def parquet(table: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def damages() -> Iterator[tuple[str, bytes]]:
    for ending in ENDINGS:
        whole = written(reviews(40), ending)
        half = len(whole) // 2
        for name, content in {
            "empty": b"",
            "a byte order mark": b"\xef\xbb\xbf",
            "newlines": b"\n" * 1000,
            "noise": random.Random(0).randbytes(5000),
            "half": whole[:half],
            "without its last byte": whole[:-1],
            "zeros in the middle": whole[:half] + b"\0\0\0\0" + whole[half:],
            "noise in the middle": whole[:half] + b"\xff\xfe\x80" + whole[half:],
            "gzip": gzip.compress(whole, mtime=0),
            "carriage returns": whole.replace(b"\n", b"\r"),
            "an end of file of DOS": whole + b"\x1a",
        }.items():
            yield f"{name}.{ending}", content


VALUES: dict[str, Any] = {
    "null": None, "an integer": 7, "a number": 0.5, "NaN": float("nan"), "infinity": float("inf"), "true": True,
    "a huge integer": 10**30, "a list": ["a"], "an empty list": [], "an object": {"a": 1}, "an empty object": {},
    "deep": [[[[[[["a"]]]]]]], "empty": "", "spaces": "   ", "half a surrogate pair": "\ud800", "a zero": "a\0b",
    "controls": "\x1b[31m\x07\x08", "right to left": "\u202eabc", "marks": "e" + "\u0301" * 5000, "long": "ab " * 500_000,
    "long word": "x" * 2_000_000, "private": "\U0010ffff\ue000\ufffe",
}  # fmt: skip


def values() -> Iterator[tuple[str, bytes]]:
    rows = reviews(40)
    for name, value in VALUES.items():
        for column in ("text", "label"):
            once = [*rows[:3], rows[3] | {column: value}, *rows[4:]]
            yield f"{column} {name} once.jsonl", written(once, "jsonl")
            if not name.startswith("long"):
                everywhere = [row | {column: value} for row in rows]
                yield f"{column} {name} everywhere.jsonl", written(everywhere, "jsonl")
        if isinstance(value, str):
            once = [*rows[:3], rows[3] | {"text": value}, *rows[4:]]
            for ending in ("csv", "tsv", "txt", *(["parquet"] if "surrogate" not in name else [])):
                yield f"text {name}.{ending}", written(once, ending)


def tables() -> Iterator[tuple[str, bytes]]:
    rows = reviews(40)
    made: dict[str, Rows] = {
        "two rows": rows[:2],
        "one class": rows[1::2],
        "a class of one": [*rows, {"text": "alone", "label": "third"}],
        "a class for each row": [row | {"label": str(place)} for place, row in enumerate(rows)],
        "all alike": [{"text": "same", "label": row["label"]} for row in rows],
        "no label": [{"text": row["text"]} for row in rows],
        "no text": [{"label": row["label"]} for row in rows],
        "other names": [{"Text": row["text"], "Label": row["label"]} for row in rows],
        "3,000 columns": [row | {f"c{place}": "x" for place in range(3000)} for row in rows[:20]],
        "columns called prediction": [row | {"prediction": "x", "": "z"} for row in rows],
        "a name of 10,000 letters": [row | {"n" * 10_000: "x"} for row in rows],
        "newlines in names": [row | {"a\nb": "x"} for row in rows],
    }
    for name, found in made.items():
        for ending in ("csv", "jsonl", "parquet"):
            yield f"{name}.{ending}", written(found, ending)
    lines = written(rows, "csv").decode().splitlines()
    for name, changed in {
        "a header alone": lines[:1],
        "text twice": ["text,text,label", *(f"x,{line}" for line in lines[1:])],
        "too many cells": [*lines, "a,b,c,d"],
        "too few cells": [*lines, "a"],
        "an open quote": [*lines[:5], '"open', *lines[5:]],
        "newlines in cells": [*lines, '"a\nb\r\nc",good'],
        "empty lines": [line + "\n\n" for line in lines],
        "formulas": [*lines, "\"=cmd|' /C calc'!A0\",good", "@SUM(1),bad"],
        "NA": [*lines, "NA,good", "None,bad", "null,good", "nan,bad"],
    }.items():
        yield f"{name}.csv", ("\n".join(changed) + "\n").encode()


def json_texts() -> Iterator[tuple[str, bytes]]:
    rows = reviews(40)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    deep = "[" * 100_000 + "]" * 100_000
    numbers = json.dumps([*rows, {"text": 0, "label": 0}])
    for name, text in {
        "100,000 lists in each other": deep,
        "100,000 open lists": "[" * 100_000,
        "a deep cell": f'{json.dumps(rows)[:-1]},{{"text":{deep},"label":"good"}}]',
        "null": "null",
        "lines of null": "null\n" * 50,
        "lines of numbers": "1\n" * 50,
        "a row, then lines of null": json.dumps(rows[0]) + "\n" + "null\n" * 50,
        "a number": "1",
        "an empty list": "[]",
        "a list of null": json.dumps([None] * 50),
        "a list of lists": json.dumps([[row["text"], row["label"]] for row in rows]),
        "columns": json.dumps(columns),
        "rows below a name": json.dumps({"version": 1, "data": rows}),
        "a name twice": "\n".join('{"text": "a", "text": "b", "label": "good"}' for _ in rows),
        "a comment": "// rows\n" + json.dumps(rows),
        "a number of 100,000 digits": numbers.replace("0", "9" * 100_000),
        "an exponent of 400": numbers.replace("0", "1e400"),
        "empty lines": "\n\n".join(json.dumps(row) for row in rows),
        "objects in one line": "".join(json.dumps(row) for row in rows),
        "indented objects": "\n".join(json.dumps(row, indent=1) for row in rows),
        "other columns in each row": "\n".join(
            json.dumps({**row, f"c{n}": n}) for n, row in enumerate(rows)
        ),
        "other types in each row": "\n".join(
            json.dumps({**row, "more": (1, "a", None)[n % 3]}) for n, row in enumerate(rows)
        ),
    }.items():
        for ending in ("json", "jsonl"):
            yield f"{name}.{ending}", text.encode()


def parquets() -> Iterator[tuple[str, bytes]]:
    texts, labels = [row["text"] for row in reviews(40)], [row["label"] for row in reviews(40)]
    broken = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeab")],
    )
    for name, text, label in (
        ("texts that are no UTF-8", pa.concat_arrays([pa.array(texts[2:]), broken]), labels),
        ("labels that are no UTF-8", texts, pa.concat_arrays([pa.array(labels[2:]), broken])),
        ("bytes", [text.encode() for text in texts], labels),
        ("null", pa.nulls(40), labels),
        ("dictionaries", pa.array(texts).dictionary_encode(), pa.array(labels).dictionary_encode()),
        ("large strings", pa.array(texts, pa.large_string()), pa.array(labels, pa.large_string())),
        ("times", texts, pa.array(range(40), pa.timestamp("s"))),
        ("large integers", texts, pa.array([2**63 + n % 2 for n in range(40)], pa.uint64())),
        ("lists", [[text] for text in texts], labels),
    ):
        yield f"{name}.parquet", parquet(pa.table({"text": text, "label": label}))
    twice = pa.Table.from_arrays(
        [*map(pa.array, (texts, texts, labels))], ["text", "text", "label"]
    )
    yield "a column twice.parquet", parquet(twice)
    yield "no rows.parquet", parquet(pa.table({"text": texts, "label": labels}).slice(0, 0))
    yield "no columns.parquet", parquet(pa.table({}))


FILES = dict(pair for each in (damages, values, tables, json_texts, parquets) for pair in each())


def class_folder(path: Path) -> None:
    for place, row in enumerate(reviews(40)):
        (path / row["label"]).mkdir(parents=True, exist_ok=True)
        (path / row["label"] / f"{place}.txt").write_text(row["text"])


def _with(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        class_folder(folder / "classes")
        change(folder / "classes")
        return folder / "classes"

    return made


def _at(name: str, make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        make(folder / name)
        return folder / name

    return made


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _copy(path: Path) -> None:
    path.write_bytes(written(reviews(40), "csv"))


# What is no plain file, or lies in a place of its own: a function of a folder that makes it and returns its path.
PLACES: dict[str, Callable[[Path], Path]] = {
    "a pipe": _at("pipe.csv", os.mkfifo),
    "a pipe called .parquet": _at("pipe.parquet", os.mkfifo),
    "a pipe without an ending": _at("pipe", os.mkfifo),
    "a socket": _at("socket.csv", _socket),
    "a folder called .csv": _at("folder.csv", os.mkdir),
    "an empty folder": _at("folder", os.mkdir),
    "a link to itself": _at("loop.csv", lambda path: path.symlink_to(path)),
    "a link to nothing": _at("dangling.csv", lambda path: path.symlink_to("nothing")),
    "a name with a newline": _at("a\nb.csv", _copy),
    "a name that is no UTF-8": _at("a\udcffb.csv", _copy),
    "a name in capitals": _at("A.CSV", _copy),
    "a name without an ending": _at("plain", _copy),
    "/dev/null": lambda _: Path("/dev/null"),
    "/dev/zero": lambda _: Path("/dev/zero"),
    "/proc/self/mem": lambda _: Path("/proc/self/mem"),
    "a class folder": _with(lambda path: None),
    "a class folder with a pipe": _with(lambda path: os.mkfifo(path / "good/pipe.txt")),
    "a class folder with a link to itself": _with(lambda path: (path / "good/loop.txt").symlink_to(path / "good/loop.txt")),
    "a class that links to itself": _with(lambda path: (path / "loop").symlink_to(path / "loop")),
    "an empty class": _with(lambda path: (path / "empty").mkdir()),
    "a class with a folder called .txt": _with(lambda path: (path / "good/folder.txt").mkdir()),
    "a class with an empty text": _with(lambda path: (path / "good/empty.txt").touch()),
    "a class with noise": _with(lambda path: (path / "good/noise.txt").write_bytes(random.Random(0).randbytes(999))),
    "a class whose name is no UTF-8": _with(lambda path: (path / "good").rename(path / "g\udcff")),
    "a class whose name has a newline": _with(lambda path: (path / "good").rename(path / "g\nb")),
    "a class folder with other files": _with(lambda path: (path / "good/.DS_Store").write_bytes(b"\0" * 99)),
}  # fmt: skip


def _hydra(key: str, path: object) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}="{escaped}"'


def trained(server: Server, folder: Path, path: Path) -> Outcome:
    return server.run(Case([*QUICK, _hydra("data.path", path)], str(folder)))


@pytest.mark.parametrize("name", FILES)
def test_training_on_a_file(server: Server, judge: Judge, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"data.{name.rpartition('.')[2]}"
    path.write_bytes(FILES[name])
    judge("files to train on", name, trained(server, tmp_path, path).mistakes())


@pytest.mark.parametrize("name", PLACES)
def test_training_on_what_is_no_plain_file(
    server: Server, judge: Judge, tmp_path: Path, name: str
) -> None:
    found = trained(server, tmp_path, PLACES[name](tmp_path)).mistakes()
    judge("folders, pipes and links to train on", name, found)


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(("json", "parquet"))])
def test_predicting_a_file(
    server: Server, run: Path, judge: Judge, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"data.{name.rpartition('.')[2]}"
    path.write_bytes(FILES[name])
    outcome = server.run(Case(["predict", f"run={run}", f"input={path}"], str(tmp_path)))
    judge("files to predict", name, outcome.mistakes())
