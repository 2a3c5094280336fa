"""Texts from a database, and answers back into it, by `pandas.read_sql` and `DataFrame.to_sql`.

    python examples/database.py read tickets.db "select text, label from tickets" tickets.parquet
    headscope train data=files data.path=tickets.parquet name=tickets
    headscope predict run=outputs/tickets input=tickets.parquet output=answers.jsonl
    python examples/database.py write tickets.db answers.jsonl answers

Why: a run needs texts that stay as they are, so a query is run once and its rows kept in a file.
Parquet and jsonl keep types: an id stays a whole number beside empty ones, "007" stays text. This
is for sqlite; for others `pip install sqlalchemy psycopg` and put, for `connect(...)`,

    sqlalchemy.create_engine(os.environ["DATABASE_URL"]).connect()

which keeps the password out of files and of the shell's history.
"""

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd


def connect(path: str, mode: str) -> sqlite3.Connection:
    """Open a database that exists: "ro" to read, "rw" to write."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True)


def read(database: str, query: str, output: str) -> None:
    """Write the rows of a query to a parquet file."""
    with closing(connect(database, "ro")) as connection:
        pd.read_sql(query, connection, dtype_backend="pyarrow").to_parquet(output)


def write(database: str, answers: str, table: str) -> None:
    """Write the lines of a jsonl file to a new table; lists, of several labels, as JSON."""
    with Path(answers).open(encoding="utf-8") as file:
        rows = [
            {
                name: json.dumps(cell) if isinstance(cell, list) else cell
                for name, cell in row.items()
            }
            for row in map(json.loads, file)
        ]
    with closing(connect(database, "rw")) as connection, connection:
        frame = pd.DataFrame(rows, dtype=object)  # else ids beside empty ones lose digits
        frame.to_sql(table, connection, if_exists="fail", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["read", "write"])
    parser.add_argument("words", nargs=3, help="database, query, output; database, answers, table")
    given = parser.parse_args()
    {"read": read, "write": write}[given.what](*given.words)
