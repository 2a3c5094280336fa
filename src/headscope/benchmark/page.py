"""A benchmark's result: tables, shown on the screen and kept as a page."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table as ScreenTable

from headscope.files import write_whole

# A path; neither a slash between two words nor an address.
ABSOLUTE = re.compile(r"""(?<![\w.~/-])(?!(?<=:)//)/[^\s,;\[\]"'=]+""")


@dataclass(frozen=True)
class Table:
    """Rows of cells with a heading, and what a reader must know to read them.

    Attributes:
        title: what was measured.
        columns: headings; the first column is set to the left, the others to the right.
        rows: cells as they are shown.
        notes: sentences below the table: sizes, what was left out, misses.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()

    def on_screen(self) -> ScreenTable:
        """Return the table for a terminal."""
        table = ScreenTable(
            title=escape(self.title),
            box=box.SIMPLE_HEAD,
            caption=escape("\n".join(self.notes)),
            caption_justify="left",
        )
        for number, heading in enumerate(self.columns):
            table.add_column(escape(heading), justify="right" if number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def as_markdown(self) -> str:
        """Return the table for a page."""
        lines = [self.columns, ("---", *("---:" for _ in self.columns[1:])), *self.rows]
        grid = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join([f"## {self.title}", grid, *self.notes])


def write_page(
    path: Path, title: str, command: Sequence[str], machine: Mapping[str, str], tables: Sequence[Table]
) -> None:
    """Write a page, whole or not at all.

    Args:
        path: of the page.
        title: its heading.
        command: what was typed.
        machine: facts of what it was measured on.
        tables: what was measured.
    """
    facts = "; ".join(f"{name} {value}" for name, value in machine.items())
    parts = [
        f"# {title}",
        f"`{portable(shlex.join(command))}`",
        f"Measured on: {facts}.",
        *(t.as_markdown() for t in tables),
    ]
    write_whole(path, lambda temporary: temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8"))


def portable(text: str) -> str:
    """Return the text with `.../` and the last part of every absolute path: a page names no folder of its machine."""
    return ABSOLUTE.sub(lambda path: f".../{path[0].rstrip('/').rpartition('/')[2]}", text)
