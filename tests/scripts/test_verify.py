"""verify by its command line."""

import subprocess
from collections.abc import Callable

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_the_table_says_what_was_checked_and_that_it_holds(script: Command) -> None:
    shown = script("verify", "dtype=float32", "style=markdown").stdout
    assert "79 of 79 properties hold: float32 on cpu" in shown
    assert shown.count("pass") == 79
    assert sum(line.startswith("|") for line in shown.splitlines()) == 79 + 2 * 6
    for words in (
        "seed 55",
        "printed to 4 decimals",
        "additive per head",
        "Bahdanau",
        "a masked key gets exactly 0",
    ):
        assert words in shown


def test_a_type_that_is_none_is_named(script: Command) -> None:
    assert "dtype" in script("verify", "dtype=float16", code=2).stderr
