"""Command lines that cannot work, or hardly: one message, the right exit code, and no traceback whatever is given."""

import random
import re
from pathlib import Path

import pytest

from hard.forked import TRAIN, Case, Server, some
from headscope.cli.main import COMMANDS
from headscope.settings.checks import keys as keys_of
from training_runs import Trained, reviews, write

pytestmark = pytest.mark.slow
LONG_WORK = {"trainer.max_epochs", "repeats"}  # whoever asks for much of these gets it
HOSTILE = [
    "", "null", "true", "-1", "0", "1", "0.5", "-0.0", "nan", "inf", "-inf", "1e400", "1e-400", "1e308", "2147483648",
    "4294967296", "9223372036854775807", "9223372036854775808", "99999999999999999999999999", "0x7f", "1_0", "[]", "[1]",
    "[a,b]", "[[1]]", "[null]", "{}", "{a:1}", "${model.d_model}", "${oc.env:HOME}", "${nothing}", "${", "???", "~", "a b",
    "'a b'", "a,b", "a=b", "\\'", '"', "\n", "\t", "é", "日本語", "\x1b[31m", "\udcff", "../x", "..", ".", "/dev/null",
    "/dev/full", "/proc/self/mem", "nothing.csv", "reviews.csv", "outputs", "os:abort", "builtins:exit", "json:loads",
    "headscope.cli.main:main", "x" * 300, "9" * 5000, "range(3)", "int(x)", "choice(1,2)", "interval(0,1)", "<b>", "%s", "{0}",
]  # fmt: skip


def drawn(number: int) -> list[str]:
    """Return a command line with one to three hostile values, drawn by the number."""
    draw = random.Random(number)
    often = {"train": 12, "verify": 1}
    command = draw.choices([*COMMANDS], [often.get(name, 4) for name in COMMANDS])[0]
    entries = keys_of(COMMANDS[command][1])
    keys = [key for key in entries if key not in LONG_WORK]
    count = min(len(keys), draw.choice([1, 1, 1, 2, 3]))
    given = {key: draw.choice(HOSTILE) for key in draw.sample(keys, count)}
    if command == "verify":  # all of its claims take a while, once they are reached
        given["dtype"] = draw.choice(HOSTILE)
    for key in keys:  # half of the numbers that are wanted are numbers
        is_number = re.search("'(integer|number)'", str(entries[key]))
        if key in given and is_number and draw.random() < 0.5:
            given[key] = draw.choice([value for value in HOSTILE if value[:1] in {*"-0123456789"}])
    return [command, *(f"{key}={value}" for key, value in given.items())]


def completed(words: list[str], run: Path) -> list[str]:
    """Return a command line with what it needs to get as far as the words that are tried, which come last and hold."""
    command, given = words[:1], words[1:]
    if command == ["train"]:
        needed = [*TRAIN[1:], "trainer.max_steps=2"]
    elif command == ["trace"]:
        needed = ["d_model=16", "batch=1", "repeats=1"]
    elif given and command[:1] in (["evaluate"], ["predict"], ["inspect"], ["export"]):
        needed = [f"run={run}", *(["output=exported"] if command == ["export"] else [])]
    else:
        needed = []
    keys = {word.partition("=")[0] for word in given}
    # What is given holds, and model=null is not followed by model.d_model=12.
    needed = [
        word for word in needed if not {word.partition("=")[0], word.partition(".")[0]} & keys
    ]
    resumes = "resume" in keys and "resume=null" not in given
    return [*command, *([] if resumes else needed), *given]


@pytest.mark.parametrize("words", some(map(drawn, range(80))), ids=ascii)
def test_one_message_and_no_traceback_whatever_is_given(
    server: Server, plain: Trained, tmp_path: Path, words: list[str]
) -> None:
    write(tmp_path / "reviews.csv", reviews(80))
    case = Case(completed(words, plain.folder), str(tmp_path))
    assert server.run(case).mistakes([0, 1, 2]) == []
