"""examples/database.py: a query becomes a file that a run reads, and answers become a table."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headscope.cli.predict import predict
from headscope.data.source import load_source
from headscope.runs.run import load_run
from headscope.settings.commands import PredictConfig
from headscope.settings.config import DataConfig
from untrained import untrained

TEXTS = ["the cat", "a film: 100% :good", "日本語", "=1+1"]
LARGE = 2**53 + 1  # a float would lose its last digit


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_table_is_read_labelled_and_written_back(
    multi_label: bool, tmp_path: Path, recipe: Callable[..., str], unchecked_shapes: None
) -> None:
    with closing(sqlite3.connect(tmp_path / "a b.db")) as connection, connection:
        connection.execute("create table tickets (id integer, code text, text text, label text)")
        rows = [(LARGE + at if at else None, "007", text, "good") for at, text in enumerate(TEXTS)]
        connection.executemany("insert into tickets values (?, ?, ?, ?)", rows)
    recipe("database.py", "read", "a b.db", "select * from tickets", "tickets.parquet")
    file = str(tmp_path / "tickets.parquet")
    config = DataConfig(path=file, max_length=16, multi_label=multi_label, cache_dir=str(tmp_path))
    assert load_source(config)["train"]["text"] == TEXTS
    folder = str(untrained(tmp_path / "run", TEXTS, config))
    predict(PredictConfig(folder, file, str(tmp_path / "answers.jsonl"), accelerator="cpu"))
    recipe("database.py", "write", "a b.db", "answers.jsonl", "answers")
    run = load_run(folder)
    found = run.predict(TEXTS)
    with closing(sqlite3.connect(tmp_path / "a b.db")) as connection:
        query = f"select id, code, text, prediction, probability_{run.labels[0]} from answers"
        answers = connection.execute(query).fetchall()
        assert connection.execute("select * from tickets").fetchall() == rows
    for row, given, each in zip(answers, rows, found, strict=True):
        assert row[:3] == given[:3]
        assert row[3] == (str(each.labels).replace("'", '"') if multi_label else each.label)
        assert row[4] == pytest.approx(each.probabilities[run.labels[0]], abs=2e-6)


def test_a_query_changes_nothing_and_a_table_is_not_replaced(
    tmp_path: Path, recipe: Callable[..., str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("create table answers as select 1 as id")
    (tmp_path / "answers.jsonl").write_text('{"id": 2}\n')
    with pytest.raises(AssertionError, match="readonly database"):
        recipe("database.py", "read", "a.db", "drop table answers", "out.parquet")
    with pytest.raises(AssertionError, match="already exists"):
        recipe("database.py", "write", "a.db", "answers.jsonl", "answers")
    with pytest.raises(AssertionError, match="unable to open"):
        recipe("database.py", "read", "no.db", "select 1", "out.parquet")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("select * from answers").fetchall() == [(1,)]
