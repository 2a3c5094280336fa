"""A benchmark's result: tables, shown on the screen and kept as a dated page."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table as ScreenTable

from headscope.files import write_whole


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
            title=self.title, box=box.SIMPLE_HEAD, caption="\n".join(self.notes), caption_justify="left"
        )
        for number, heading in enumerate(self.columns):
            table.add_column(heading, justify="right" if number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def as_markdown(self) -> str:
        """Return the table for a page."""
        lines = [self.columns, ("---", *("---:" for _ in self.columns[1:])), *self.rows]
        grid = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join([f"## {self.title}", grid, *self.notes])


def write_page(
    folder: Path, suite: str, device: str, command: str, machine: Mapping[str, str], tables: Sequence[Table]
) -> Path:
    """Write <date>-<suite>-<device>.md, whole or not at all, and return its path."""
    date = datetime.datetime.now(datetime.UTC).date()
    path = folder / f"{date}-{suite}-{device}.md"
    facts = "; ".join(f"{name} {value}" for name, value in machine.items())
    parts = [
        f"# {suite}, {device}, {date}",
        f"`{command}`",
        f"Measured on: {facts}.",
        *(t.as_markdown() for t in tables),
    ]
    write_whole(path, lambda temporary: temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8"))
    return path
