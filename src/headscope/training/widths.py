"""Whether a table fits on a screen, and where a name may go on in a second line. Free of anything heavy."""

import re

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

UNBOUNDED = 10_000  # a screen on which any table fits
BREAKS = re.compile(r"(?<=[\s/_,])")  # after which a name may be broken: between the parts of a path or of a run's name


def width_of(table: Table, console: Console) -> int:
    """Return the columns of the screen that a table takes if nothing in it goes on in a second line."""
    return console.measure(table, options=console.options.update(width=UNBOUNDED)).maximum


def fits(table: Table, console: Console) -> bool:
    """Tell whether a table fits on the screen whole."""
    return width_of(table, console) <= console.width


def broken(name: str, width: int) -> str:
    """Return the name in lines of at most this width, each ending between two of its parts; a longer part stays."""
    lines = [""]
    for part in BREAKS.split(name):
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
