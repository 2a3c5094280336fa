"""verify and trace by their command lines."""

import re
import subprocess
from collections.abc import Callable

import pytest
import torch

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_the_table_says_what_was_checked_and_that_it_holds(script: Command) -> None:
    shown = script("verify", "dtype=float32", "style=markdown").stdout
    assert "98 of 98 properties hold: float32 on cpu" in shown
    assert len(re.findall(r"\| *pass *\|", shown)) == 98
    assert sum(line.startswith("|") for line in shown.splitlines()) == 98 + 2 * 7
    for words in ("seed 55", "additive per head", "Bahdanau", "a masked key gets exactly 0"):
        assert words in shown


def test_trace_prints_the_steps_and_their_cost(script: Command) -> None:
    printed = script("trace", "repeats=1").stdout
    assert "B=32, T=100, D=768, H=8, E=96" in printed
    assert "(32, 8, 100, 100)" in printed
    assert "multiply-adds" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "dtype=float16"], "dtype: "),
        (["trace", "num_heads=7"], "num_heads: "),
        (["trace", "seq_len=100000000"], "seq_len: 100000000 tokens in a batch of 32 do not fit"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(
    script: Command, arguments: list[str], words: str
) -> None:
    done = script(*arguments, code=2)
    assert done.stderr.startswith(f"error: {words}")
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_missing_is_named(script: Command) -> None:
    assert "torch finds no CUDA GPU" in script("verify", "device=cuda", code=2).stderr
