"""Rows of a database by SQLAlchemy: those of a query, and a table written from predictions.

No setting holds a password: `postgresql+psycopg://me:$PGPASSWORD@host/tickets` names a variable of
the environment, which is read when the connection is made.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.ground.errors import DataError, first_line, masked
from headscope.ground.plain_rows import Row
from headscope.ground.tables import frame_of

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


@contextmanager
def _connected(url: str, **options: Any) -> Iterator[Any]:
    """Yield a connection; what it did is rolled back unless the block commits it.

    Raises:
        DataError: for whatever the database rejects, without the password.
    """
    try:
        from sqlalchemy import NullPool, create_engine, make_url
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise DataError(f"{masked(url)}: needs sqlalchemy: pip install -e '.[sql]'") from None
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
    file = url.partition(":///")[2].partition("?")[0]
    if url.startswith("sqlite") and not Path(file).is_file():  # which would make it
        raise DataError(f"{url}: no such file; the current directory is {Path.cwd()}")
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
    with _connected(url) as connection:
        from sqlalchemy import inspect

        if inspect(connection).has_table(table) and not overwrite:
            raise DataError(f"table={table}: exists in {masked(url)}; overwrite=true replaces it")
    frame = frame_of(rows, columns)
    with _connected(url) as connection, connection.begin():
        if connection.dialect.name == "sqlite":  # else it makes the table outside the transaction
            connection.exec_driver_sql("begin")
        frame.to_sql(table, connection, if_exists="replace", index=False, chunksize=ROWS_AT_ONCE)
