"""What a terminal is shown: texts, labels and names from data are signs to it, never commands.

A text may hold ESC sequences, which move the cursor, rename the window or hide what stands before them.
"""

import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

# C0 but for tab and line feed, DEL, C1, and halves of characters, which cannot be encoded.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with U+FFFD for each control character."""
    return UNPRINTABLE.sub("\ufffd", text)


def terminal(console: Console | None = None) -> Console:
    """Return the console, or one for standard output, which from now on prints no control character of any text."""
    console = console or Console()
    console.push_render_hook(_PrintableAlone())
    return console


class _PrintableAlone(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Printable:
    """Something to print, whose text is made printable once it is laid out; rich's own commands are kept apart."""

    content: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.content, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def warnings_as_notes() -> None:
    """Print each warning of this process as one line on standard error, `note: ...`."""
    warnings.showwarning = lambda message, *_: print(printable(f"note: {message}"), file=sys.stderr)
