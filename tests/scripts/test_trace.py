"""trace by its command line."""

import io
import re
import subprocess
from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from headscope.commands.config import TraceConfig
from headscope.commands.trace import trace_attention

Command = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("batch=2", "seq_len=5", "d_model=21", "num_heads=3", "repeats=1")
STEPS = ["project to Q, K, V", "cut into Q, K, V", "split into heads", "scores Q·Kᵀ", "scale", "softmax", "weighted sum A·V",
         "concatenate heads", "output projection"]  # fmt: skip


def row(shown: str, name: str, number: int = 0) -> str:
    """Return the line of a table that begins with a name."""
    return [line for line in shown.splitlines() if line.strip().startswith(name)][number]


def test_the_default_table_shows_every_step(script: Command) -> None:
    shown = script("trace", "repeats=1").stdout
    positions = [shown.index(f"\n {name} ") for name in STEPS]
    assert positions == sorted(positions)
    assert "B=32, T=100, D=768, H=8, E=96" in shown
    for name, cells in {
        "input ": ["(32, 100, 768)"],
        "project to Q, K, V": [
            "(32, 100, 768)",
            "(32, 100, 2304)",
            "1,771,776",
            "B·T·3D·D",
            "5,662,310,400",
            "O(n·d²)",
        ],
        "cut into Q, K, V": ["(32, 100, 2304)", "3 × (32, 100, 768)", "O(n)", "0, a view"],
        "split into heads": ["3 × (32, 100, 768)", "3 × (32, 8, 100, 96)", "O(n)", "0, a view"],
        "scores Q·Kᵀ": [
            "2 × (32, 8, 100, 96)",
            "(32, 8, 100, 100)",
            "B·H·T²·E",
            "245,760,000",
            "O(n²·d)",
            "10,240,000",
        ],
        "scale": ["(32, 8, 100, 100)", "2,560,000", "O(n²)"],
        "softmax": ["(32, 8, 100, 100)", "2,560,000", "O(n²)"],
        "weighted sum A·V": ["(32, 8, 100, 100)", "(32, 8, 100, 96)", "245,760,000", "O(n²·d)", "9,830,400"],
        "concatenate heads": ["(32, 8, 100, 96)", "(32, 100, 768)", "9,830,400"],
        "output projection": ["(32, 100, 768)", "590,592", "B·T·D·D", "1,887,436,800"],
        "total": ["2,362,368", "8,041,267,200", "89,702,400"],
    }.items():
        assert all(cell in row(shown, name) for cell in cells), row(shown, name)
    assert "by 1/√96 ≈ 1/9.8" in shown
    low, high = map(float, re.search(r"each row sums to (\S+) … (\S+)", shown).groups())  # type: ignore[union-attr]
    assert 0.99999 < low <= 1 <= high < 1.00001
    difference = re.search(r"largest absolute difference (\S+)", shown)
    assert difference
    assert float(difference.group(1)) < 1e-5


@pytest.mark.parametrize("options", [["bias=false", "dtype=float64"], ["dtype=bfloat16"]])
def test_other_types_and_no_biases(script: Command, options: list[str]) -> None:
    shown = script("trace", *SMALL, *options, "device=cpu").stdout
    assert f"{options[-1].removeprefix('dtype=')} on cpu" in shown
    size = 8 if "dtype=float64" in options else 2
    assert f"{size * 2 * 3 * 5 * 5:,}" in row(shown, "softmax")
    assert f"{4 * 21 * 21 + (0 if 'bias=false' in options else 4 * 21):,}" in row(shown, "total")


def narrow(config: TraceConfig) -> str:
    """Return what is printed on 100 columns."""
    written = io.StringIO()
    trace_attention(config, Console(file=written, width=100))
    assert max(map(len, written.getvalue().splitlines())) <= 100
    return written.getvalue()


def test_a_narrow_screen_gets_the_same_numbers_and_cuts_none() -> None:
    shown = narrow(TraceConfig(batch=2, seq_len=5, d_model=21, num_heads=3, repeats=1))
    for cell in ("2 × (2, 3, 5, 7)", "(2, 3, 5, 5)", "B·H·T²·E", f"{2 * 3 * 25 * 7:,}", "O(n²·d)", "0, a view"):
        assert cell in shown
    grown = narrow(TraceConfig(repeats=1, grow=True, lengths=[8, 16, 32, 64, 128, 256, 512]))
    assert row(grown, "softmax (exp)").split()[-3:] == ["k", "2.0000", "2"]
    assert all(len([line for line in grown.splitlines() if line.strip().startswith(name)]) == 2 for name in STEPS)


def test_growth_finds_the_exponents(script: Command) -> None:
    shown = script("trace", "grow=true", "lengths=[8,16,32,64]", "repeats=1").stdout
    assert "batch=1 d_model=64 num_heads=2" in shown
    for name in STEPS:
        counted, timed = row(shown, name).split(), row(shown, name, 1).split()
        if name in ("project to Q, K, V", "output projection"):
            assert counted[-2:] == ["1.0000", "1"]
        elif "cut" in name or "split" in name or "concatenate" in name:
            assert counted[-5:] == ["0", "0", "0", "0", "none"]
        else:
            assert counted[-2:] == ["2.0000", "2"]
        assert timed[-1] == ("view" if "cut" in name or "split" in name else counted[-1].replace("none", "1"))
    assert "p fitted to it at n = 16, 32, 64" in shown
    assert "n = 2·D = 128" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["num_heads=7"], "num_heads: got 7, takes a divisor of d_model=768"),
        (["d_model=21", "grow=true"], "num_heads: got 2, takes a divisor of d_model=21"),
        (["num_heads=0"], "num_heads: got 0, takes at least 1"),
        (["seq_len=9", "grow=true"], "seq_len: is of no use with grow=true"),
        (["lengths=[8]"], "lengths: got [8], takes two or more rising numbers"),
        (["lengths=[8,4]", "grow=true"], "lengths: got [8, 4], takes"),
        (["lengths=[0,4]", "grow=true"], "lengths: got [0, 4], takes"),
        (["seq_len=100000000"], "seq_len: 100000000 tokens in a batch of 32"),
        (["dtype=int8"], "dtype: got 'int8', takes one of"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(script: Command, arguments: list[str], words: str) -> None:
    done = script("trace", *arguments, code=2)
    assert done.stderr.startswith(f"error: {words}")
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_named(script: Command) -> None:
    assert "torch finds no CUDA GPU" in script("trace", "device=cuda", code=2).stderr


def test_help_lists_every_key_with_its_meaning(script: Command) -> None:
    shown = script("trace", "--help").stdout
    assert "must divide d_model" in shown
    assert "headscope trace" in shown
