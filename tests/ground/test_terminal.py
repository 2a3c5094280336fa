"""What data may not do to the terminal of whoever looks at it."""

import io
import re
import sys
import threading
import time

import pytest
from rich.console import Console

from headscope.cli.main import main, run
from headscope.ground.errors import listed, shown
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.results.console import plain_table

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31mred\r\x00\x7f"
COMMANDS = set(HOSTILE) - set("]0;title[2J31mred")


def test_no_line_and_no_table_prints_a_control_character_of_a_text() -> None:
    shown = io.StringIO()
    console = terminal(Console(file=shown, width=200))
    show_line(console, HOSTILE, HOSTILE)
    console.print(plain_table([HOSTILE], [HOSTILE], [[HOSTILE, HOSTILE]]))
    show_line(console, "good\u202e \u2066", "\u200f")
    assert "good<U+202E> <U+2066><U+200F>" in shown.getvalue()
    assert COMMANDS & set(shown.getvalue()) == set()
    assert shown.getvalue().count("title") == 6


def test_messages_have_none_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headscope"])
    with pytest.raises(SystemExit):
        main(["tra\x1b[2Jn"])
    assert capsys.readouterr().err.count("\\x1b[2J") == 1


def test_a_phase_has_its_name_and_a_bar_on_a_terminal_and_leaves_no_trace() -> None:
    shown = io.StringIO()
    console = terminal(Console(file=shown, force_terminal=True, width=80))
    with Bar(console, "counting n-grams"):
        assert len(threading.enumerate()) > 1  # rich draws it
    assert "counting n-grams" in shown.getvalue()
    assert "━" in shown.getvalue()
    assert shown.getvalue().endswith("\x1b[1A\x1b[2K")  # the line is cleared
    hidden = io.StringIO()
    with Bar(Console(file=hidden, force_terminal=True), "counting", is_hidden=True):
        pass
    assert hidden.getvalue() == ""


def test_lines_break_between_words_on_a_terminal_and_nowhere_else() -> None:
    words = f"a line of words, {'long/' * 20}path and [bold]"
    for is_terminal, width in ((True, 20), (False, 20)):
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=is_terminal, width=width)
        show_line(console, words)
        assert shown.getvalue().split() == words.split()
        assert len(shown.getvalue().splitlines()) == (1 + 2 * is_terminal)
        show_line(console, "copy: ", "a command of several words")
        assert len(shown.getvalue().splitlines()) == (2 + 2 * is_terminal)
    shown = io.StringIO()
    show_line(Console(file=shown, force_terminal=True, width=20), "a line of several words 言葉")
    assert shown.getvalue() == "a line of several \nwords 言葉\n"


def test_a_bar_is_shown_while_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkgutil.resolve_name", lambda _: lambda _: None)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for words, is_shown in ((["trace"], True), (["train", "trainer.progress=false"], False)):
        shown = io.StringIO()
        monkeypatch.setattr(sys, "stderr", shown)
        assert run(words[0], words[1:]) == 0
        assert ("starting" in shown.getvalue()) == is_shown


def test_without_a_terminal_a_line_now_and_then_has_step_loss_and_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headscope.ground.terminal.SECONDS_BETWEEN_LINES", 0.05)
    shown = io.StringIO()
    console = terminal(Console(file=shown, width=80))
    with Bar(console, "training", total=1000) as bar:
        for step in range(1, 6):
            time.sleep(0.05)
            bar.update(step, name=f"training, loss {step}.000")
    lines = shown.getvalue().splitlines()
    assert len(lines) >= 2
    line = r"training, loss \d\.000, step \d of 1000, \d+ s, about \d+ s left"
    assert re.fullmatch(line, lines[-1])
    time.sleep(0.1)
    assert shown.getvalue().splitlines() == lines  # it has ended
    with Bar(console, "training", is_hidden=True):
        time.sleep(0.1)
    assert shown.getvalue().splitlines() == lines


def test_a_message_names_twenty_and_counts_the_rest() -> None:
    assert listed([]) == ""
    assert listed(["a", 2]) == "a, 2"
    assert listed(list(range(1, 21))).endswith("19, 20")
    assert listed(list(range(1, 24))).endswith("19, 20 and 3 more")


def test_a_message_shows_the_beginning_of_a_long_value_and_escapes_for_control_characters() -> None:
    assert shown("日本 é") == "日本 é"
    assert shown("a\n\x1b[31m") == r"a\n\x1b[31m"
    assert shown("x" * 100_000) == "x" * 60 + "... (100,000 characters)"
    assert listed(["x" * 100_000] * 30) == ", ".join([shown("x" * 100_000)] * 20) + " and 10 more"
