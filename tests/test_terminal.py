"""What data may not do to the terminal of whoever looks at it."""

import io
import sys

import pytest
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headscope.cli.main import main
from headscope.terminal import terminal

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31mred\r\x00\x7f"
COMMANDS = set(HOSTILE) - set("]0;title[2J31mred")


def test_no_console_prints_a_control_character_of_a_text() -> None:
    shown = io.StringIO()
    console = terminal(Console(file=shown, width=200))
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(Text(HOSTILE))
    for renderable in (HOSTILE, Text(HOSTILE), {"row": HOSTILE}, table):
        console.print(renderable, soft_wrap=True)
    assert COMMANDS & set(shown.getvalue()) == set()
    assert shown.getvalue().count("title") == 6


def test_colours_and_what_moves_on_the_screen_still_work() -> None:
    shown = io.StringIO()
    console = terminal(Console(file=shown, force_terminal=True, width=80))
    with Live("going on", console=console, auto_refresh=False):
        console.print("[bold]done[/] \x1b[2J")
    assert "\x1b[1mdone\x1b[0m" in shown.getvalue()
    assert "\x1b[2J" not in shown.getvalue()
    assert "\x1b[?25l" in shown.getvalue()  # the cursor is hidden while it goes on


def test_messages_have_none_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headscope"])
    with pytest.raises(SystemExit):
        main(["tra\x1b[2Jn"])
    assert capsys.readouterr().err.count("\\x1b[2J") == 1
