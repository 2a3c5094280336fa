"""A console on which texts from data cannot act: they may hold ESC sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from headscope.errors import printable


def terminal(console: Console | None = None) -> Console:
    """Return the console, by default standard output; it prints no control characters."""
    console = console or Console()
    console.push_render_hook(_PrintableAlone())
    return console


class _PrintableAlone(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Printable:
    """Something to print, made printable once it is laid out; rich's own control codes are kept."""

    content: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.content, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
