"""Files that are damaged, strange or hostile, to train on and to predict: read, or refused in one message."""

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
import pytest
from pyarrow import parquet

from hard.forked import TRAIN, Case, Server, some
from training_runs import Rows, reviews

pytestmark = pytest.mark.slow
QUICK = [word for word in TRAIN if "data.path" not in word and "tokens_per" not in word]
QUICK += ["data.tokens_per_batch=2048", "trainer.max_steps=1", "inspection.enabled=false"]
VALUES: dict[str, Any] = {
    "null": None, "a number": 0.5, "NaN": float("nan"), "infinity": float("inf"), "true": True, "a huge integer": 10**30,
    "a list": ["a"], "an object": {"a": 1}, "deep": [[[[[[["a"]]]]]]], "half a surrogate pair": "\ud800", "a zero": "a\0b",
    "controls": "\x1b[31m\x07\x08", "right to left": "\u202eabc", "marks": "e" + "\u0301" * 5000, "long": "ab " * 500_000,
    "long word": "x" * 2_000_000, "private": "\U0010ffff\ue000\ufffe",
}  # fmt: skip


def written(rows: Rows, ending: str) -> bytes:
    """Return rows of text and label as a file of this kind."""
    if ending == "parquet":
        file = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), file)
        return file.getvalue()
    lines = [json.dumps(row) for row in rows]
    if ending == "csv":
        lines = [",".join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows))]
    return ("\n".join(lines) + "\n").encode()


def files() -> Iterator[tuple[str, bytes]]:
    rows = reviews(40)
    for ending in ("csv", "json", "parquet"):
        whole = written(rows, ending)
        half = len(whole) // 2
        for name, content in {
            "newlines": b"\n" * 1000,
            "noise": random.Random(0).randbytes(5000),
            "half": whole[:half],
            "zeros in the middle": whole[:half] + b"\0\0\0\0" + whole[half:],
            "noise in the middle": whole[:half] + b"\xff\xfe\x80" + whole[half:],
            "gzip": gzip.compress(whole, mtime=0),
            "carriage returns": whole.replace(b"\n", b"\r"),
        }.items():
            yield f"{name}.{ending}", content
        for name, table in {
            "one class": rows[1::2],
            "a class for each row": [row | {"label": str(n)} for n, row in enumerate(rows)],
            "3,000 columns": [row | {f"c{n}": "x" for n in range(3000)} for row in rows[:20]],
            "other columns": [row | {"prediction": "x", "": "z", "a\nb": "y"} for row in rows],
        }.items():
            yield f"{name}.{ending}", written(table, ending)
    for name, value in VALUES.items():
        for column in ("text", "label"):
            once = [*rows[:3], rows[3] | {column: value}, *rows[4:]]
            yield f"{column} {name} once.jsonl", written(once, "jsonl")


FILES = dict(files())


def _at(name: str, make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        make(folder / name)
        return folder / name

    return made


# What is no plain file: a function of a folder that makes it and returns its path.
PLACES: dict[str, Callable[[Path], Path]] = {
    "a pipe": _at("pipe.csv", os.mkfifo),
    "a socket": _at("socket.csv", lambda path: os.mknod(path, stat.S_IFSOCK | 0o600)),
    "an empty folder": _at("folder.csv", os.mkdir),
    "a link to itself": _at("loop.csv", lambda path: path.symlink_to(path)),
    "a name with a newline": _at("a\nb.csv", lambda path: path.write_bytes(written(reviews(40), "csv"))),
    "a name that is no UTF-8": _at("a\udcffb.csv", lambda path: path.write_bytes(written(reviews(40), "csv"))),
    "/dev/zero": lambda _: Path("/dev/zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", some([*FILES, *PLACES]))
def test_training_on_a_file(server: Server, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"data.{name.rpartition('.')[2]}"
    if name in PLACES:
        path = PLACES[name](tmp_path)
    else:
        path.write_bytes(FILES[name])
    outcome = server.run(Case([*QUICK, f"data.path={path}"], str(tmp_path)))
    assert outcome.mistakes() == []


@pytest.mark.parametrize("name", some(name for name in FILES if name.endswith(("csv", "jsonl"))))
def test_predicting_a_file(server: Server, run: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"data.{name.rpartition('.')[2]}"
    path.write_bytes(FILES[name])
    outcome = server.run(Case(["predict", f"run={run}", f"input={path}"], str(tmp_path)))
    assert outcome.mistakes() == []
