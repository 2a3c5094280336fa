"""Printing lines, in which texts from data cannot act: they may hold ESC sequences."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from headscope.ground.errors import on_screen
from headscope.ground.files import check_links

SECONDS_BETWEEN_LINES = 30.0
UNBOUNDED = 10_000  # columns of a screen on which any table fits
PHASE = (
    TextColumn("{task.description}"),
    BarColumn(20),
    TimeElapsedColumn(),
    TimeRemainingColumn(elapsed_when_finished=True),  # nothing where there is no total
)


def terminal(console: Console | None = None) -> Console:
    """Return the console, by default standard output."""
    return console or LastingConsole()


class LastingConsole(Console):
    """A console that is silent once its reader is gone, such as `head`; rich's ends the process."""

    def on_broken_pipe(self) -> None:
        """Continue without output."""
        with suppress(SystemExit):
            super().on_broken_pipe()


def show_line(console: Console, words: str, command: str = "") -> None:
    """Print words as they are. On a terminal lines break between words, but for a command's.

    A longer word, such as a path, stays whole, so that it can be copied.
    """
    text = Text(on_screen(words)).append(on_screen(command), style="bold")
    if console.is_terminal and not command:
        widest = max(map(cell_len, words.split()), default=0)
        text = Text("\n").join(text.wrap(console, max(console.width, widest)))
    console.print(text, soft_wrap=True)


@contextmanager
def logged(folder: Path) -> Iterator[Console]:
    """Let what is printed within the block go to log.txt in a folder; return its console."""
    folder.mkdir(parents=True, exist_ok=True)
    check_links(folder)
    with (
        (folder / "log.txt").open("a", encoding="utf-8") as file,
        redirect_stdout(file),
        redirect_stderr(file),
    ):
        yield Console(file=file, width=120)


class Bar:
    """rich's bar with a name, removed at its end; where no terminal shows it, a line every 30 s.

    As a context manager it is shown while the block runs. Without a total it pulses.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        total: int | None = None,
        columns: tuple[ProgressColumn, ...] = PHASE,
        is_hidden: bool = False,
    ) -> None:
        self._is_shown = console.is_terminal and not is_hidden
        self._bar = Progress(
            *columns,
            console=console,
            transient=True,
            disable=not self._is_shown,
            speed_estimate_period=300,  # seconds: a validation counts for what it is
        )
        self._task = self._bar.add_task(name, total=total, start=False)
        self._is_over = threading.Event()
        self._is_hidden = is_hidden

    def start(self) -> None:
        """Show it."""
        self.reset(0)
        self._bar.start()
        if not (self._is_shown or self._is_hidden):
            threading.Thread(target=self._print_lines, daemon=True).start()

    def reset(self, completed: int) -> None:
        """Begin to count the time; `completed` were done before."""
        self._bar.reset(self._task, completed=completed)

    def update(self, completed: int, total: int | None = None, name: str | None = None) -> None:
        """Advance it, and perhaps give it a total or another name."""
        self._bar.update(self._task, completed=completed, total=total, description=name)

    def stop(self) -> None:
        """Remove it."""
        self._is_over.set()
        self._bar.stop()

    def _print_lines(self) -> None:
        while not self._is_over.wait(SECONDS_BETWEEN_LINES):
            show_line(self._bar.console, self.line())

    def line(self) -> str:
        """Return its name, what is done and the time, of what is left too where it is known."""
        (task,) = self._bar.tasks
        parts = [task.description]
        if task.total is not None:
            parts.append(f"step {task.completed:.0f} of {task.total:.0f}")
        parts.append(f"{task.elapsed or 0:.0f} s")
        if task.time_remaining is not None:
            parts.append(f"about {task.time_remaining:.0f} s left")
        return ", ".join(parts)

    def __enter__(self) -> "Bar":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def plain_table(
    texts: Iterable[str], numbers: Iterable[str], rows: Iterable[Iterable[object]]
) -> Table:
    """Return a table with columns of texts, folded where they are wide, and of numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in texts:
        table.add_column(escape(on_screen(name)), overflow="fold")
    for name in numbers:
        table.add_column(escape(on_screen(name)), no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*(escape(on_screen(str(cell))) for cell in row))
    return table
