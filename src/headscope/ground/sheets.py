"""Sheets of Excel, read as a csv file would be."""

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from io import TextIOWrapper
from subprocess import PIPE, Popen
from tempfile import TemporaryFile

from headscope.ground.errors import DataError, warn
from headscope.ground.plain_rows import Lines, Row, csv_rows

# calamine holds rows x columns at once, and ends the process where memory does not allow it: so a
# process of its own reads the sheet. It prints the names of all sheets, the cells of the first that
# have no value (an error such as #N/A, or a formula that nothing has computed), and it as csv.
READER = """
import csv, json, re, sys
from datetime import date, datetime
from contextlib import suppress
from posixpath import basename
from zipfile import ZipFile
from python_calamine import SheetTypeEnum, load_workbook
with suppress(ImportError):  # on Windows
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

def text(cell):
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    is_day = isinstance(cell, date) and not isinstance(cell, datetime)
    return f"{cell} 00:00:00" if is_day else str(cell)

def without_value(path):
    with ZipFile(path) as archive:
        first = re.search(rb'<sheet [^>]*\\bid="([^"]+)"', archive.read("xl/workbook.xml"))[1]
        links = archive.read("xl/_rels/workbook.xml.rels")
        for link in re.findall(rb"<Relationship [^>]+>", links):
            if b'"' + first + b'"' in link:
                target = re.search(rb'Target="([^"]+)"', link)[1].decode()
        sheet = archive.read("xl/worksheets/" + basename(target))
    cells = re.findall(rb'<c r="([A-Z]+[0-9]+)"([^>/]*)>(.*?)</c>', sheet, re.DOTALL)
    has_value = re.compile(rb"<(v|t)[^>]*>[^<]")
    return [
        place.decode()
        for place, kind, content in cells
        if b't="e"' in kind or (b"<f" in content and not has_value.search(content))
    ]

try:
    book = load_workbook(sys.argv[1])
    names = [each.name for each in book.sheets_metadata if each.typ == SheetTypeEnum.WorkSheet]
    sys.stdout.reconfigure(encoding="utf-8", newline="")
    empty = []
    with suppress(LookupError, TypeError, NameError):  # a workbook that names its parts otherwise
        empty = without_value(sys.argv[1])
    print(json.dumps([names, len(empty), *empty[:1]]))
    table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    rows = (map(text, row) for row in book.get_sheet_by_name(names[0]).iter_rows())
    table.writerows(row for row in map(list, rows) if len(row) == 1 or any(row))
except Exception as error:
    sys.exit(str(error) or type(error).__name__)
"""


def sheet_rows(path: str) -> Iterator[Row]:
    """Yield the rows of the first sheet, each cell as text; an empty line is no row.

    Raises:
        DataError: if python-calamine is missing.
        ValueError: if it cannot be read.
    """
    if find_spec("python_calamine") is None:
        raise DataError(f"{path}: needs python-calamine: pip install -e '.[excel]'")
    with (
        TemporaryFile("w+", encoding="utf-8") as problem,
        Popen([sys.executable, "-c", READER, path], stdout=PIPE, stderr=problem) as reader,
    ):
        assert reader.stdout is not None
        lines = Lines(TextIOWrapper(reader.stdout, "utf-8", newline=""))
        try:
            names, num_empty, *empty = json.loads(next(iter(lines), "[[], 0]"))
            if len(names) > 1:
                warn(f"{path}: the first of {len(names)} sheets is read, {names[0]}")
            if num_empty:
                cells = f"{num_empty} cells, the first {empty[0]}, have an error or a formula"
                warn(f"{path}: {cells} without a value and are read as empty; save it in Excel")
            for row in csv_rows(lines, ",", is_guarded=False):
                yield row
                lines.held = 0
        finally:
            lines.file.close()  # a reader of no more rows is ended
        if reader.wait():
            problem.seek(0)
            reason = problem.read().strip().rpartition("\n")[2]
            if reader.returncode < 0:
                reason = "it takes more than 1.5 GB or a minute; save it as csv in UTF-8"
            raise ValueError(f"cannot be read as xlsx: {reason}")
