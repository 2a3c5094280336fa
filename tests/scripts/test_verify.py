"""verify by its command line."""

import subprocess
from collections.abc import Callable

import pytest
import torch

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_table_says_what_is_claimed_and_that_it_holds(script: Command, dtype: str) -> None:
    shown = script("verify", f"dtype={dtype}").stdout
    assert f"102 of 102 claims hold: {dtype} on cpu" in shown
    assert shown.count("pass") == 102
    for words in ("seed 55", "printed to 4 decimals", "additive per head", "Bahdanau", "a masked key gets exactly 0"):
        assert words in shown


def test_it_prints_markdown_for_a_page(script: Command) -> None:
    lines = script("verify", "style=markdown").stdout.splitlines()
    assert sum(line.startswith("|") for line in lines) == 102 + 2 * 6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_named(script: Command) -> None:
    assert "torch finds no CUDA GPU" in script("verify", "device=cuda", code=2).stderr
    assert "dtype" in script("verify", "dtype=float16", code=2).stderr
