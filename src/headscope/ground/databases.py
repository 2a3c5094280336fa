"""Rows of a database by SQLAlchemy: those of a query, and a table written from predictions.

No setting holds a password: `postgresql+psycopg://me:$PGPASSWORD@host/tickets` names a variable of
the environment, which is read when the connection is made.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headscope.ground.errors import DataError, first_line, masked
from headscope.ground.plain_rows import Row
from headscope.ground.tables import plain_cell

# A URL; what is at others is downloaded first.
DATABASE = re.compile(r"(?!https?:|ftp:|s3:|gs:|hf:|file:)[a-z]\w[\w+]*://")
ROWS_AT_ONCE = 1_000


def is_database(path: str) -> bool:
    """Tell the URL of a database, such as sqlite:///tickets.db, from a path."""
    return DATABASE.match(path) is not None


def absolute_url(url: str) -> str:
    """Return the URL of a database; that of sqlite names its file by an absolute path."""
    scheme, sign, file = url.partition(":///")
    is_file = sign and scheme.startswith("sqlite")
    return f"{scheme}:///{Path(file).absolute()}" if is_file else url


def missing_database(url: str) -> str | None:
    """Return what a database lacks on this machine: the package, or the file; None if nothing."""
    if find_spec("sqlalchemy") is None:
        return "sqlalchemy, which is not installed: pip install -e '.[sql]'"
    scheme, _, file = url.partition(":///")
    path = Path(file.partition("?")[0])
    is_there = not scheme.startswith("sqlite") or path.is_file()
    return None if is_there else f"a file that exists: the current directory is {Path.cwd()}"


@contextmanager
def _connected(url: str, **options: Any) -> Iterator[Any]:
    """Yield a connection; what it did is rolled back unless the block commits it.

    Raises:
        DataError: for whatever the database rejects, without the password.
    """
    from sqlalchemy import NullPool, create_engine, make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        place = make_url(url)
        if place.password is not None:
            name = str(place.password).removeprefix("$")
            if name not in os.environ:
                raise DataError(f"{masked(url)}: the environment variable {name} is not set")
            place = place.set(password=os.environ[name])
        with create_engine(place, poolclass=NullPool).connect() as connection:
            yield connection.execution_options(**options)
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        raise DataError(f"{masked(url)}: {masked(first_line(error))}") from None


def query_rows(url: str, sql: str) -> Iterator[Row]:
    """Yield the rows of a query, some in memory at a time; the connection can only read.

    Raises:
        DataError: if the query fails.
    """
    options = {"stream_results": True, "no_parameters": True, "postgresql_readonly": True}
    with _connected(url, **options) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("pragma query_only = on")
        for row in connection.exec_driver_sql(sql).yield_per(ROWS_AT_ONCE).mappings():
            yield dict(row)


def write_table(
    url: str, table: str, rows: Iterable[Row], columns: Sequence[str], overwrite: bool
) -> None:
    """Write rows, which are held in memory, to a new table; `columns` are those without rows.

    Raises:
        DataError: before the first row is asked for, if the table exists, unless `overwrite`.
    """
    import pandas as pd
    from sqlalchemy import inspect

    with _connected(url) as connection:
        if inspect(connection).has_table(table) and not overwrite:
            raise DataError(f"table={table}: exists in {masked(url)}; overwrite=true replaces it")
    found = [{name: plain_cell(value) for name, value in row.items()} for row in rows]
    frame = pd.DataFrame(found, columns=None if found else [*columns])
    with _connected(url) as connection, connection.begin():
        if connection.dialect.name == "sqlite":  # else it makes the table outside the transaction
            connection.exec_driver_sql("begin")
        frame.to_sql(table, connection, if_exists="replace", index=False, chunksize=ROWS_AT_ONCE)
