"""trace by its command line."""

import subprocess
from collections.abc import Callable

import pytest
import torch

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_it_prints_the_steps_and_an_example(script: Command) -> None:
    printed = script("trace", "repeats=1").stdout
    assert "B=32, T=100, D=768, H=8, E=96" in printed
    assert "(32, 100, 100)" in printed
    assert "a small example" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["num_heads=7"], "num_heads: got 7, takes a divisor of d_model=768"),
        (["num_heads=0"], "num_heads: got 0, takes at least 1"),
        (["lengths=[8]"], "lengths: got [8], takes two or more rising numbers"),
        (["lengths=[8,4]", "grow=true"], "lengths: got [8, 4], takes"),
        (["lengths=[0,4]", "grow=true"], "lengths: got [0, 4], takes"),
        (
            ["seq_len=100000000"],
            "seq_len: 100000000 tokens in a batch of 32 do not fit into memory",
        ),
        (["dtype=int8"], "dtype: got 'int8', takes one of"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(
    script: Command, arguments: list[str], words: str
) -> None:
    done = script("trace", *arguments, code=2)
    assert done.stderr.startswith(f"error: {words}")
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("name", ["trace", "verify"])
def test_a_device_that_is_not_there_is_named(script: Command, name: str) -> None:
    assert "torch finds no CUDA GPU" in script(name, "device=cuda", code=2).stderr


def test_help_lists_every_key_with_its_meaning(script: Command) -> None:
    shown = script("trace", "--help").stdout
    assert "must divide d_model" in shown
    assert "headscope trace" in shown
