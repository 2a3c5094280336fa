"""A database in and out, by sqlite and by a PostgreSQL that the test starts; passwords stay outside."""

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from headscope.cli.main import main
from headscope.cli.predict import predict
from headscope.data.source import load_source
from headscope.ground.databases import query_rows, write_table
from headscope.ground.errors import ConfigError, DataError, masked, message_of
from headscope.runs.folder import save_model
from headscope.runs.run import load_run
from headscope.settings.checks import override, validate
from headscope.settings.commands import PredictConfig
from headscope.settings.config import DataConfig, TrainConfig, absolute
from untrained import LABELS, untrained

TEXTS = ["the cat", "a film: 100% :good", "日本語", "=1+1"]
QUERY = "select id, body as text, label from tickets where label like '%o%' order by id -- :a %s"


def filled(url: str) -> str:
    """Return the URL of a database, after a table of four tickets is made."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("create table tickets (id integer, body text, label text)"))
        rows = [{"id": at, "body": body, "label": "good"} for at, body in enumerate(TEXTS)]
        connection.execute(text("insert into tickets values (:id, :body, :label)"), rows)
    engine.dispose()
    return url


def run_as_postgres(*words: str) -> None:
    user = {"user": "postgres"} if os.getuid() == 0 else {}
    subprocess.run(words, check=True, capture_output=True, timeout=120, cwd="/tmp", **user)  # type: ignore[call-overload]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Return the URL of a PostgreSQL of its own, in a temporary folder and on a socket in it."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = tempfile.mkdtemp(prefix="headscope-pg-", dir="/tmp")  # a socket's path is short
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        Path(folder).chmod(0o755)
        data = f"{folder}/data"
        run_as_postgres("initdb", "-D", data, "-U", "me", "--auth=trust", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        start = ("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
        run_as_postgres(*start)
        try:
            yield f"postgresql+psycopg://me:$TICKETS_PASSWORD@/postgres?host={folder}"
        finally:
            run_as_postgres("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Return the URL of a database with a table of tickets."""
    monkeypatch.setenv("TICKETS_PASSWORD", "se:c/r@et")
    if request.param == "sqlite":
        yield filled(f"sqlite:///{tmp_path}/tickets.db")
        return
    url = request.getfixturevalue("server")
    plain = url.replace(":$TICKETS_PASSWORD", "")
    yield filled(plain) and url
    engine = create_engine(plain)
    with engine.begin() as connection:
        connection.execute(text("drop schema public cascade"))
        connection.execute(text("create schema public"))
    engine.dispose()


def test_a_query_is_a_source(url: str, tmp_path: Path) -> None:
    config = DataConfig(path=url, sql=QUERY, cache_dir=str(tmp_path))
    rows = [*load_source(config)["train"]]
    assert rows == [{"text": each, "label": "good"} for each in TEXTS]


def test_predictions_go_to_a_table_of_the_same_database(
    url: str, tmp_path: Path, unchecked_shapes: None
) -> None:
    run = str(untrained(tmp_path / "run", TEXTS, DataConfig(max_length=16)))
    config = PredictConfig(
        run, url, output=url, sql=QUERY, table="answers", accelerator="cpu", min_confidence=0.5
    )
    for again in (False, True):  # the second replaces the first
        assert predict(override(config, {"overwrite": again})) == 4
    with pytest.raises(DataError, match=r"table=answers: exists in .*; overwrite=true replaces it"):
        predict(config)
    rows = [*query_rows(url, "select * from answers order by id")]
    names = [f"probability_{name}" for name in LABELS]
    assert [*rows[0]] == ["id", "text", "label", "prediction", *names, "abstained"]
    assert [(row["id"], row["text"]) for row in rows] == [*enumerate(TEXTS)]
    expected = load_run(run).predict(TEXTS)
    for row, prediction in zip(rows, expected, strict=True):
        found = [row[name] for name in names]
        assert found == pytest.approx([*prediction.probabilities.values()], abs=2e-6)


@pytest.mark.parametrize(
    "sql", ["drop table tickets", "delete from tickets", "create table other (a integer)", "no sql"]
)
def test_a_query_changes_nothing(url: str, sql: str) -> None:
    with pytest.raises(DataError, match=r"tickets|postgres"):
        [*query_rows(url, sql)]
    assert len([*query_rows(url, "select * from tickets")]) == 4


def test_a_table_is_written_whole_or_not_at_all(url: str) -> None:
    with pytest.raises(DataError):
        write_table(url, "answers", [{"a": "x", "b": object()}], [], overwrite=False)
    write_table(url, "answers", [], ["text"], overwrite=False)
    assert [*query_rows(url, "select * from answers")] == []


SECRET = "postgresql://me:hun%2Fter2@localhost:5432/tickets"


@pytest.mark.parametrize(
    "url",
    [SECRET, "mysql://localhost/tickets?user=me&password=hun%2Fter2", SECRET.replace("%2F", "/$")],
)
def test_a_password_in_a_url_is_rejected_and_not_repeated(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="expected a URL without a password") as found:
        validate(TrainConfig, {"data": {"path": url, "sql": "select 1"}})
    assert "ter2" not in str(found.value)
    words = [f"data.path={url}", "data.sql=select 1", f"outputs_dir={tmp_path}"]
    for more in ([], ["--cfg"], ["-m", "seed=1,2"], ["--help"], ["data.sqll=1"]):
        with pytest.raises(SystemExit):
            main(["train", *words, *more])
        printed = capsys.readouterr()
        assert "ter2" not in printed.out + printed.err
    assert [*tmp_path.iterdir()] == []
    assert "ter2" not in message_of(DataError(f"{url}: fails"))


def test_a_variable_stands_for_the_password_and_is_all_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql+psycopg://me:$TICKETS_PASSWORD@localhost:1/tickets"
    config = DataConfig(path=url, sql="select 1", max_length=16, cache_dir=str(tmp_path))
    with pytest.raises(DataError, match="variable TICKETS_PASSWORD is not set"):
        load_source(config)
    monkeypatch.setenv("TICKETS_PASSWORD", "hunter2")
    with pytest.raises(DataError, match=r"localhost:1/tickets: .*") as found:
        load_source(config)
    assert "hunter2" not in str(found.value)
    folder = untrained(tmp_path / "run", TEXTS, config)
    run = load_run(folder)
    assert run.config.data.path == url
    save_model(folder, run.setup, run.model, run.chosen)
    for path in folder.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()
    assert "hunter2" not in json.dumps(asdict(run.config))


@pytest.mark.parametrize(
    "url", ["postgresql://localhost:5432/a", "sqlite:////a/b:c@d.db", "a: b@c"]
)
def test_what_is_no_password_stays(url: str) -> None:
    assert masked(url) == url


def test_a_file_of_sqlite_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("sqlite:///a.db") == f"sqlite:///{tmp_path}/a.db"
    assert absolute(f"sqlite:///{tmp_path}/a.db") == f"sqlite:///{tmp_path}/a.db"
    assert absolute("postgresql://h/a") == "postgresql://h/a"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["data.path=sqlite:///no.db", "data.sql=select 1"],
            "sqlite:///no.db: no such file; the current directory is",
        ),
        (["data.path=sqlite:///no.db"], "data.path: expected a file, or a database with a query"),
        (["data.sql=select 1"], "data.sql: expected null, as path is no database"),
    ],
)
def test_mistakes_are_told_at_once(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", *words])
    assert message in capsys.readouterr().err
    assert not Path("no.db").exists()


def test_a_column_with_a_gap_or_mixed_numbers_is_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("create table t (text, label)")
        connection.executemany("insert into t values (?, ?)", [("a", 1), ("b", 2)])
    url = f"sqlite:///{tmp_path}/a.db"
    config = DataConfig(path=url, sql="select * from t", cache_dir=str(tmp_path))
    assert load_source(config)["train"]["label"] == [1, 2]
